"""The paper's workloads, the modes side by side, energy, and how far the machine would allow to go."""
