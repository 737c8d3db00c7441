"""Large payloads in a folder or in a cloud's object store."""
