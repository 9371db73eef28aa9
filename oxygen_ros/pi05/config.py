"""The sizes of a pi0.5 network, and the presets this project uses."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace


class _Sizes:
    """A dataclass whose whole numbers are lengths and counts. Raises ValueError for one that is none."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int" and (type(value) is not int or value < 1):
                raise ValueError(f"{field.name} is {value!r}, expected a whole number from 1 on")


@dataclass(frozen=True)
class VisionConfig(_Sizes):
    """SigLIP vision tower: square images cut into square patches."""

    image_size: int = 224
    patch_size: int = 14
    width: int = 1152
    depth: int = 27
    num_heads: int = 16
    mlp_dim: int = 4304
    layer_norm_eps: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.image_size % self.patch_size:
            raise ValueError(f"image_size {self.image_size} is not a multiple of patch_size {self.patch_size}")
        if self.width % self.num_heads:
            raise ValueError(f"vision width {self.width} is not a multiple of num_heads {self.num_heads}")

    @property
    def tokens_per_image(self) -> int:
        return (self.image_size // self.patch_size) ** 2


@dataclass(frozen=True)
class TransformerConfig(_Sizes):
    """A Gemma transformer; backbone and action expert differ in `width` and `mlp_dim` only."""

    width: int
    depth: int
    mlp_dim: int
    num_heads: int
    num_kv_heads: int
    head_dim: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"num_heads {self.num_heads} is not a multiple of num_kv_heads {self.num_kv_heads}")
        if self.head_dim % 2:
            raise ValueError(f"head_dim {self.head_dim} is odd; rotary position needs pairs")


@dataclass(frozen=True)
class Pi05Config(_Sizes):
    """A whole pi0.5 network.

    `action_dim` is the padded width of an action in model space, `action_horizon` the number of
    actions in a chunk, `max_token_len` the longest prompt in tokens.
    """

    vision: VisionConfig
    backbone: TransformerConfig
    expert: TransformerConfig
    vocab_size: int = 257152
    action_dim: int = 32
    action_horizon: int = 50
    max_token_len: int = 200
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    time_min_period: float = 4e-3
    time_max_period: float = 4.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("depth", "num_heads", "num_kv_heads", "head_dim"):
            ours, theirs = getattr(self.backbone, name), getattr(self.expert, name)
            if ours != theirs:
                raise ValueError(f"backbone and action expert share attention, but {name} is {ours} and {theirs}")

    @classmethod
    def from_dict(cls, fields: dict) -> Pi05Config:
        """The inverse of `to_dict`. Raises TypeError for an unknown field."""
        return cls(**{
            **fields,
            "vision": VisionConfig(**fields["vision"]),
            "backbone": TransformerConfig(**fields["backbone"]),
            "expert": TransformerConfig(**fields["expert"]),
        })

    def to_dict(self) -> dict:
        return asdict(self)

    def with_horizon(self, action_horizon: int) -> Pi05Config:
        return replace(self, action_horizon=action_horizon)


PRESETS = {
    # The released model: SigLIP So400m/14, Gemma 2B, Gemma 300M.
    "pi05": Pi05Config(
        vision=VisionConfig(),
        backbone=TransformerConfig(2048, 18, 16384, num_heads=8, num_kv_heads=1, head_dim=256),
        expert=TransformerConfig(1024, 18, 4096, num_heads=8, num_kv_heads=1, head_dim=256),
    ),
    # The benchmark size: large enough that a CPU's time is arithmetic, not dispatch.
    "mid": Pi05Config(
        vision=VisionConfig(width=288, depth=8, num_heads=8, mlp_dim=1076),
        backbone=TransformerConfig(512, 8, 4096, num_heads=8, num_kv_heads=1, head_dim=64),
        expert=TransformerConfig(256, 8, 1024, num_heads=8, num_kv_heads=1, head_dim=64),
        vocab_size=32768,
        action_horizon=10,
    ),
    # The embedded default policy: small enough for git and for 10 Hz on two CPU cores.
    "tiny": Pi05Config(
        vision=VisionConfig(image_size=112, width=96, depth=4, num_heads=4, mlp_dim=256),
        backbone=TransformerConfig(128, 4, 512, num_heads=4, num_kv_heads=1, head_dim=32),
        expert=TransformerConfig(96, 4, 256, num_heads=4, num_kv_heads=1, head_dim=32),
        vocab_size=1024,
    ),
}
