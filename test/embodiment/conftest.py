import json
from io import BytesIO
from pathlib import Path

import pytest
import sentencepiece
from safetensors.numpy import load_file
from tokenizers import Tokenizer as HuggingFaceTokenizer
from tokenizers import decoders, models, normalizers

from oxygen_ros.embodiment.tokenizer import Tokenizer

REFERENCE = Path(__file__).parents[1] / "reference" / "pi05_tiny_a"
SENTENCES = ["move the arm to the left", "pick up the red block", "Task: open it, State: 1 2 3;\nAction: "] * 20


@pytest.fixture(scope="session")
def recorded():
    """Tensors and texts of preprocess.*, and the numbers of robot_transforms.json."""
    return {
        "tensors": load_file(REFERENCE / "preprocess.safetensors"),
        "texts": json.loads((REFERENCE / "preprocess.json").read_text()),
        "robots": json.loads((REFERENCE / "robot_transforms.json").read_text()),
        "openpi_statistics": json.loads((REFERENCE / "openpi/assets/tiny/norm_stats.json").read_text())["norm_stats"],
        "lerobot_statistics": load_file(REFERENCE / "policy_preprocessor_step_3_normalizer_processor.safetensors"),
    }


def train_sentencepiece(**options) -> bytes:
    model = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES),
        model_writer=model,
        vocab_size=330,
        hard_vocab_limit=False,
        byte_fallback=True,
        minloglevel=2,
        user_defined_symbols=["\n"],
        **{
            "pad_id": 0,
            "eos_id": 1,
            "bos_id": 2,
            "unk_id": 3,
            "add_dummy_prefix": False,
            "remove_extra_whitespaces": False,
            "normalization_rule_name": "identity",
            **options,
        },
    )
    return model.getvalue()


def build_huggingface() -> str:
    """A tokenizer.json in the manner of PaliGemma's: BPE over spaces as "\u2581", bytes where a character is
    unknown."""
    pieces = [
        "<pad>",
        "<eos>",
        "<bos>",
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *"\u2581\nabcdefghijklmnopqrstuvwxyz,.:;",
        "th",
        "the",
        "\u2581the",
    ]
    tokenizer = HuggingFaceTokenizer(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(pieces)},
            merges=[("t", "h"), ("th", "e"), ("\u2581", "the")],
            byte_fallback=True,
            unk_token="<unk>",
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_special_tokens(["<pad>", "<eos>", "<bos>", "<unk>"])
    return tokenizer.to_str()


@pytest.fixture(scope="session")
def sentencepiece_model():
    """Trains a small SentencePiece model with byte fallback under further trainer options -> its file's bytes."""
    return train_sentencepiece


@pytest.fixture(scope="session")
def sentencepiece_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sentencepiece")
    (folder / "tokenizer.model").write_bytes(train_sentencepiece())
    return folder


@pytest.fixture(scope="session")
def huggingface_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("huggingface")
    (folder / "tokenizer.json").write_text(build_huggingface())
    return folder


@pytest.fixture(scope="session")
def tokenizer(sentencepiece_folder):
    return Tokenizer.load(sentencepiece_folder)
