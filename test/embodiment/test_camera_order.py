import pytest

from oxygen_ros.embodiment.camera_order import SLOTS, arrange
from oxygen_ros.embodiment.errors import InputError
from oxygen_ros.embodiment.registry import robot
from oxygen_ros.embodiment.robot import Camera

LIBERO = robot("libero").cameras


def order(cameras, features=(), **chosen):
    return [(camera.name, camera.slot) for camera in arrange(cameras, features, chosen)]


def test_openpi_s_order_is_that_of_its_slots_whatever_the_owner_s():
    cameras = [Camera("hand", SLOTS[2]), Camera("left", SLOTS[1]), Camera("top", SLOTS[0])]
    assert order(cameras) == [("top", SLOTS[0]), ("left", SLOTS[1]), ("hand", SLOTS[2])]
    assert order(cameras[:2]) == [("left", SLOTS[1]), ("hand", SLOTS[2])]
    assert order([Camera("hand", "hand"), Camera("top", "top")]) == [("hand", "hand"), ("top", "top")]
    assert order([Camera("a", "a"), Camera("b", "b")], a=SLOTS[1], b=SLOTS[0]) == [("b", SLOTS[0]), ("a", SLOTS[1])]


def test_a_lerobot_policy_s_features_by_name_by_slot_or_as_the_owner_says():
    assert order(LIBERO, SLOTS) == [("image", SLOTS[0]), ("wrist_image", SLOTS[1])]
    assert order(LIBERO, ("wrist_image", "image")) == [("wrist_image", "wrist_image"), ("image", "image")]
    said = {"wrist_image": "observation.images.image2"}
    assert order(LIBERO, ("image2", "image"), **said) == [("wrist_image", "image2"), ("image", "image")]
    assert order(LIBERO[:1], ("image", "image2")) == [("image", "image")]  # a missing camera is left out
    assert arrange([Camera("image", "x", True, 180)], ("image",), {}) == (Camera("image", "image", True, 180),)


@pytest.mark.parametrize(
    "cameras, features, chosen",
    [
        (LIBERO, ("image", "image2"), {}),  # which is image2?
        (LIBERO, ("top", "side"), {"image": "top"}),
        (LIBERO, ("image", "image2"), {"wrist_image": "image3"}),
        (LIBERO, ("image", "image2"), {"wrist_image": "image"}),
        ([Camera("top", SLOTS[0]), Camera("hand", "hand")], (), {}),
    ],
)
def test_what_cannot_be_told_is_refused_with_both_lists(cameras, features, chosen):
    with pytest.raises(InputError) as error:
        arrange(cameras, features, chosen)
    for word in (*(camera.name for camera in cameras), *(features or SLOTS), "camera.<name>.slot"):
        assert word in str(error.value)
