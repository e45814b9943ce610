//! What code is generated for.

use std::fmt;
use std::str::FromStr;

/// A GPU architecture: `sm_80`, `sm_90a`, …
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// Ten times the major plus the minor compute capability: 80, 86, 89, 90, 100, 120.
    pub arch: u32,
    /// Has the instructions that exist on exactly this architecture (the `a` of `sm_90a`)?
    pub accelerated: bool,
}

impl Target {
    /// Ampere (A100).
    pub const SM_80: Target = Target { arch: 80, accelerated: false };
    /// Hopper with its own instructions (H100, H200).
    pub const SM_90A: Target = Target { arch: 90, accelerated: true };

    /// Largest shared memory of one tile block in bytes.
    pub const fn max_shared_bytes(self) -> u32 {
        match self.arch {
            80 | 87 => 166_912,
            86 | 89 | 120 | 121 => 101_376,
            _ => 232_448,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.arch, if self.accelerated { "a" } else { "" })
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let unknown =
            || format!("unknown target `{text}`: expected sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100, sm_120, …");
        let digits = text.strip_prefix("sm_").ok_or_else(unknown)?;
        let (digits, accelerated) = match digits.strip_suffix('a') {
            Some(rest) => (rest, true),
            None => (digits, false),
        };
        let arch: u32 = digits.parse().map_err(|_| unknown())?;
        const KNOWN: [u32; 12] = [80, 86, 87, 88, 89, 90, 100, 103, 107, 110, 120, 121];
        if !KNOWN.contains(&arch) || (accelerated && arch < 90) {
            return Err(unknown());
        }
        Ok(Target { arch, accelerated })
    }
}
