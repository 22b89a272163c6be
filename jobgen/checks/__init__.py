"""The rules: judgements over one case, by subject, with the registry and the bases of their examples."""
