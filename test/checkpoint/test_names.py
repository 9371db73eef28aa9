"""F24 and F26: tied matrices, wrappers' prefixes, left-overs, adapters."""

import pytest
import torch
from safetensors.torch import save_file
from spoil import EMBEDDING, HEAD, assert_as_recorded, edit, outcome, recorded, weights, write

from oxygen_ros.checkpoint.errors import CheckpointError
from oxygen_ros.checkpoint.load import load


def matrices(folder, head: bool, embedding: bool):
    tensors = weights(folder)
    matrix = tensors.pop(HEAD)
    tensors.pop(EMBEDDING, None)
    write(folder, tensors | ({HEAD: matrix} if head else {}) | ({EMBEDDING: matrix.clone()} if embedding else {}))


@pytest.mark.parametrize("head, embedding", [(True, False), (False, True), (True, True)])
def test_stored_once_or_twice(folder, head, embedding):
    matrices(folder, head, embedding)
    assert_as_recorded(folder)
    checkpoint = load(folder)
    assert not checkpoint.untied
    told = f"{HEAD if head else EMBEDDING} is both token embedding and language head"
    assert (told in checkpoint.notes) == (head != embedding)


def test_a_broken_tie_is_said_and_both_are_used(folder):
    tensors = weights(folder)
    generator = torch.Generator().manual_seed(0)
    tensors[EMBEDDING] = tensors[HEAD].clone()
    tensors[HEAD] = torch.randn(tensors[HEAD].shape, generator=generator)
    write(folder, tensors)
    checkpoint = load(folder)
    assert (
        f"warning: the tie of embedding and language head is broken: tokens are embedded by {EMBEDDING}, "
        f"language comes from {HEAD}"
    ) in checkpoint.notes
    model = checkpoint.model()
    assert torch.equal(model.backbone.embedding, tensors[EMBEDDING])
    assert torch.equal(model.backbone.head, tensors[HEAD])
    actions, tokens = outcome(checkpoint)
    theirs, their_tokens = recorded(folder)
    torch.testing.assert_close(actions, theirs, atol=3e-5, rtol=0)  # the head has no part in them
    assert tokens != their_tokens


def test_the_same_matrix_in_two_types_is_no_broken_tie(folder):
    tensors = weights(folder)
    tensors[HEAD] = tensors[HEAD].bfloat16()
    write(folder, tensors | {EMBEDDING: tensors[HEAD].float()})
    assert not load(folder).untied


def test_neither_is_refused_with_both_names(folder):
    matrices(folder, head=False, embedding=False)
    with pytest.raises(CheckpointError) as error:
        load(folder)
    assert HEAD in str(error.value) and EMBEDDING in str(error.value)


@pytest.mark.parametrize("prefix", [
    "_orig_mod.", "module.", "model.", "module._orig_mod.", "model._orig_mod.", "_orig_mod.module.model.",
    "model.model.", "module.module._orig_mod.",
])
def test_prefixes_are_seen_through(folder, prefix):
    write(folder, weights(folder), prefix=prefix)
    assert_as_recorded(folder)
    assert not [note for note in load(folder).notes if note.startswith("warning")]


@pytest.mark.parametrize("wrapper", ["_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"])
def test_wrappers_inside(folder, wrapper):
    tensors = {n.replace("layers.1.", f"layers.1.{wrapper}."): value for n, value in weights(folder).items()}
    write(folder, tensors)
    assert_as_recorded(folder)


def test_one_tensor_under_two_names_is_refused(folder):
    tensors = weights(folder)
    write(folder, tensors | {"module.time_mlp_in.bias": tensors["time_mlp_in.bias"].clone()})
    with pytest.raises(CheckpointError, match="both for time_mlp_in.bias: remove one"):
        load(folder)


def test_harmless_left_overs_are_listed_without_warning(folder):
    extra = "paligemma_with_expert.gemma_expert.model.embed_tokens.weight"
    write(folder, weights(folder) | {extra: torch.ones(4, 32)})
    assert_as_recorded(folder)
    notes = load(folder).notes
    assert [n for n in notes if "2 left-over tensors are not used" in n and extra in n]
    assert not [note for note in notes if note.startswith("warning")]


def test_unknown_extras_are_counted_and_named(folder):
    write(folder, weights(folder) | {f"value_head.{i}.weight": torch.ones(2) for i in range(9)})
    assert_as_recorded(folder)
    (warning,) = [note for note in load(folder).notes if note.startswith("warning")]
    assert "9 tensors belong to no part of pi0.5" in warning
    assert "value_head.0.weight" in warning and warning.endswith("and 3 more")


@pytest.mark.parametrize("beside_weights", [False, True])
def test_an_adapter_folder_is_refused(folder, beside_weights):
    save_file({"base_model.model.x.lora_A.weight": torch.ones(2)}, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text("{}")
    if not beside_weights:
        (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="LoRA adapter .*merge the adapter into its base model first"):
        load(folder)


@pytest.mark.parametrize("name", ["q_proj.lora_A.weight", "q_proj.lora_A.default.weight", "q_proj.base_layer.weight"])
def test_adapter_tensors_are_refused(folder, name):
    write(folder, weights(folder) | {f"paligemma_with_expert.paligemma.x.{name}": torch.ones(2)})
    with pytest.raises(CheckpointError, match=f"1 LoRA adapter tensors .*{name}.*merge the adapter"):
        load(folder)


def test_unknown_config_fields_are_ignored(lerobot_folder):
    edit(lerobot_folder / "config.json", lambda c: c.update(a_field_of_next_year={"deep": [1]}, use_peft=False))
    assert_as_recorded(lerobot_folder)
