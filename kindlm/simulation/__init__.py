"""Simulated tools: what stands in for the real ones while a model is tested."""

from kindlm.simulation.simulator import SimulatedTools

__all__ = ["SimulatedTools"]
