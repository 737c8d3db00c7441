"""The command API over HTTP: decoding, refusals as problems, and nothing that decides."""
