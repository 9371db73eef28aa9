"""When pi0.5 is computed, and on which memory: KV slots, frames, language requests that outlive them."""
