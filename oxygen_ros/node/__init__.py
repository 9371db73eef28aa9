"""The ROS face: lifecycle node, parameters, topics and QoS, message conversion, diagnostics, markers."""
