"""A recorded bag in, an evaluation out; and the bag's own topics, played live."""
