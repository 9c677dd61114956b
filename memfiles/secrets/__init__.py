"""The gate that every text passes before it is kept: rules that find credentials, and what is done about them."""
