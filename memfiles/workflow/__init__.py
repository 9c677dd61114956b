"""What is declared: strict YAML checked into typed models."""
