"""Where files of packages lie: in the clone, in a workspace, or where pip put them."""

from __future__ import annotations

import sys
from pathlib import Path

from .settings import SettingsError


def resolve(path: str) -> Path:
    """A path as given, `~` expanded; package://NAME/REST under the package's share folder.

    Without ROS only package://oxygen_ros/ is known: in the clone, or where pip put it. Raises SettingsError.
    """
    scheme, separator, rest = path.partition("package://")
    if scheme or not separator:
        try:
            place = Path(path).expanduser()
            place.exists()  # raises where nobody may look
            return place
        except (RuntimeError, OSError) as error:
            raise SettingsError([f"{path} cannot be found: {error}"]) from error
    package, _, inside = rest.partition("/")
    try:
        from ament_index_python.packages import PackageNotFoundError, get_package_share_directory
    except ImportError:
        if package == __package__:
            clone = Path(__file__).parent.parent
            return (clone if (clone / "package.xml").is_file() else Path(sys.prefix) / "share" / package) / inside
        raise SettingsError([f"{path} needs ROS to find package {package}; give a path"]) from None
    try:
        return Path(get_package_share_directory(package)) / inside
    except (PackageNotFoundError, ValueError):  # not there, or no name of a package
        raise SettingsError([f"{path} names package {package}, which is not on AMENT_PREFIX_PATH"]) from None
