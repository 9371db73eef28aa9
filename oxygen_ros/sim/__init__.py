"""Simulated robots. Of ROS, this room knows only message definitions: it records a bag on a machine without it."""
