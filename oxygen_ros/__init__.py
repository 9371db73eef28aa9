"""A pi0.5 robot policy as a ROS 2 node: actions and language from one prefill per frame."""

from pkgutil import extend_path

# The messages (oxygen_ros.msg) are generated into the install space, the modules may be run from
# the source tree: one package, in as many folders as sys.path has of this name.
__path__ = extend_path(__path__, __name__)
