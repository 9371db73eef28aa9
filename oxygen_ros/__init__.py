"""A shared-KV pi0.5 engine as a ROS 2 package."""
