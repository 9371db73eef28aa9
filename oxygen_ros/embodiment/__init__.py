"""Between robot units and model units: pictures, prompt, state and actions. NumPy only: no ROS, no torch."""
