"""OpenAI's HTTP interface to the engine: what is asked is checked, what is answered is shaped and streamed."""
