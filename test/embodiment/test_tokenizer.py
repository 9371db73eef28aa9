import random
import socket
import sys

import pytest
import sentencepiece
from tokenizers import Tokenizer as HuggingFaceTokenizer

from oxygen_ros.embodiment.errors import InputError
from oxygen_ros.embodiment.tokenizer import StreamingDecoder, Tokenizer

TEXT = "move the \uc7a0 \uae70 \U0001f680 ok"


@pytest.fixture(params=["sentencepiece_folder", "huggingface_folder"])
def both(request):
    return Tokenizer.load(request.getfixturevalue(request.param))


def stream(tokenizer, ids):
    decoder = StreamingDecoder(tokenizer)
    return [decoder.push(i) for i in ids], decoder.flush()


def test_files_are_found_by_name_and_no_socket_is_opened(
    tmp_path, sentencepiece_folder, huggingface_folder, monkeypatch
):
    def refuse(*_, **__):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    model = (sentencepiece_folder / "tokenizer.model").read_bytes()
    (tmp_path / "paligemma_tokenizer.model").write_bytes(model)
    expected = sentencepiece.SentencePieceProcessor(model_proto=model).encode(TEXT)
    for path in (tmp_path, tmp_path / "paligemma_tokenizer.model", sentencepiece_folder):
        loaded = Tokenizer.load(path)
        assert (loaded.encode(TEXT), loaded.pad, loaded.eos, loaded.bos) == (expected, 0, 1, 2)
    file = huggingface_folder / "tokenizer.json"
    inner = HuggingFaceTokenizer.from_file(str(file))
    for path in (huggingface_folder, file):
        loaded = Tokenizer.load(path)
        assert loaded.encode(TEXT) == inner.encode(TEXT, add_special_tokens=False).ids
        assert (loaded.pad, loaded.eos, loaded.bos, loaded.vocab_size) == (0, 1, 2, inner.get_vocab_size())


def test_the_file_s_own_truncation_and_padding_do_not_apply(tmp_path, huggingface_folder):
    inner = HuggingFaceTokenizer.from_file(str(huggingface_folder / "tokenizer.json"))
    plain = inner.encode(TEXT, add_special_tokens=False).ids
    for length in (4, 40):
        inner.enable_truncation(length)
        inner.enable_padding(length=40)
        inner.save(str(tmp_path / "tokenizer.json"))
        assert Tokenizer.load(tmp_path).encode(TEXT) == plain


def test_none_lists_the_names_and_the_place(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError) as error:
            Tokenizer.load(path)
        for word in (str(path), "tokenizer.model", "paligemma_tokenizer.model", "tokenizer.json"):
            assert word in str(error.value)


@pytest.mark.parametrize("name", ["tokenizer.model", "tokenizer.json"])
@pytest.mark.parametrize("content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b'{"model": 1}'])
def test_a_file_of_something_else_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=name):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("folder, package", [
    ("sentencepiece_folder", "sentencepiece"), ("huggingface_folder", "tokenizers")])
def test_without_the_package_that_reads_it_interpreter_and_remedy_are_named(request, monkeypatch, folder, package):
    """F57: no distribution of ROS brings them."""
    folder = request.getfixturevalue(folder)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(InputError) as error:
        Tokenizer.load(folder)
    for part in (str(folder), f"{sys.executable} without a Python package {package}", f"-m pip install {package}"):
        assert part in str(error.value)


def test_a_model_without_begin_of_sequence_is_refused(tmp_path, sentencepiece_model):
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece_model(bos_id=-1, unk_id=2))
    with pytest.raises(InputError, match="bos id -1"):
        Tokenizer.load(tmp_path)


def test_text_that_spells_a_control_piece_is_text(both):
    ids = both.encode("go<eos>on<bos></s>")
    assert both.eos not in ids and both.bos not in ids
    assert both.decode(ids) == "go<eos>on<bos></s>"


def test_streamed_text_is_the_decoded_text(both):
    ids = both.encode(TEXT)
    deltas, rest = stream(both, ids)
    assert "".join(deltas) + rest == both.decode(ids) == TEXT
    assert rest == "" and "" in deltas and not any("\ufffd" in delta for delta in deltas)
    assert deltas[-1] and deltas.count("\U0001f680") == 1


def test_control_and_unknown_ids_give_no_text(both):
    ids = both.encode(" the arm")
    noisy = [both.bos, ids[0], both.pad, *ids[1:], both.eos, both.vocab_size, 10**6, -1]
    deltas, rest = stream(both, noisy)
    assert "".join(deltas) + rest == both.decode(noisy) == " the arm"
    assert deltas[0] == deltas[2] == deltas[-1] == ""


def test_an_unfinished_character_comes_out_at_the_end(both):
    ids = both.encode("\uc7a0\U0001f680")[:-1]
    deltas, rest = stream(both, ids)
    assert "".join(deltas).strip() == "\uc7a0" and rest == "\ufffd" * 3
    assert "".join(deltas) + rest == both.decode(ids)


def test_any_ids_stream_to_what_they_decode_to(both):
    bytes_of = both.encode("\U0001f680\uc7a0\u00e9")
    generator = random.Random(0)
    for _ in range(2000):
        ids = [
            generator.choice([generator.randrange(both.vocab_size), generator.choice(bytes_of), generator.randrange(4)])
            for _ in range(12)
        ]
        deltas, rest = stream(both, ids)
        assert "".join(deltas) + rest == both.decode(ids)


@pytest.mark.parametrize(
    "options", [{}, {"add_dummy_prefix": True}, {"remove_extra_whitespaces": True, "add_dummy_prefix": True}]
)
def test_decode_is_sentencepiece_s_own(tmp_path, sentencepiece_model, options):
    (tmp_path / "tokenizer.model").write_bytes(model := sentencepiece_model(**options))
    ours, theirs = Tokenizer.load(tmp_path), sentencepiece.SentencePieceProcessor(model_proto=model)
    generator = random.Random(1)
    for _ in range(500):
        ids = [generator.randrange(ours.vocab_size) for _ in range(10)]
        deltas, rest = stream(ours, ids)
        assert "".join(deltas) + rest == theirs.decode(ids)


def test_decode_is_the_tokenizers_library_s_own(huggingface_folder):
    inner = HuggingFaceTokenizer.from_file(str(huggingface_folder / "tokenizer.json"))
    ids = inner.encode("<bos>move the \uc7a0 \U0001f680 ok<eos>", add_special_tokens=False).ids
    assert Tokenizer.load(huggingface_folder).decode(ids) == inner.decode(ids)
