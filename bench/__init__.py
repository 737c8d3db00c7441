"""Measures Tocsin from outside: a sink that notes when calls come, /proc for CPU, HTTP for load."""
