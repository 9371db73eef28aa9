"""Reading weights, configurations and statistics from policy folders."""
