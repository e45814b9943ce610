//! Recurrent layers: selective scan, Mamba-2, gated delta rule.
