"""Between robot units and model units: pictures, prompt, state and actions. No ROS, no torch."""
