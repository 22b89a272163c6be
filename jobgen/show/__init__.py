"""Results for people and programs: text, JSON, GitHub annotations, SARIF, rule pages, plots."""
