"""What pi0.5 computes: vision tower, language backbone, action expert and flow-matching sampling."""
