"""Silos behind Flower: the fabric that its records travel by, and the apps that Flower runs; only here is flwr imported."""

from scool_ppl.far.flower.fabric import FlowerFabric, client_app, server_app

__all__ = ["FlowerFabric", "client_app", "server_app"]
