//! Targets of code generation: GPU architectures.

use std::fmt;
use std::str::FromStr;

/// A GPU architecture: `sm_80`, `sm_90a`, …
///
/// ```
/// # use cutlet::doctest::*;
/// let x = ct::ArraySpec::<f32, 1>::new([64]);
/// let fill = |x: ArrayMut<f32, 1>| x.store(0, ct::zeros([64]));
/// assert!(ct::inspect(fill, (x.mutable(),)).target(ct::Target::SM_80).ptx()?.contains(".target sm_80"));
/// # Ok::<(), ct::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Target {
    /// Ten times the major plus the minor compute capability: 80, 86, 89, 90, 100, 120.
    pub arch: u32,
    /// True for the architecture-specific instructions (the `a` of `sm_90a`).
    pub accelerated: bool,
}

impl Target {
    /// Ampere (A100).
    pub const SM_80: Target = Target { arch: 80, accelerated: false };
    /// Hopper with architecture-specific instructions (H100, H200).
    pub const SM_90A: Target = Target { arch: 90, accelerated: true };

    /// Returns the maximal shared memory of one tile block in bytes.
    pub const fn max_shared_bytes(self) -> u32 {
        match self.arch {
            80 | 87 => 166_912,
            86 | 89 | 120 | 121 => 101_376,
            _ => 232_448,
        }
    }

    /// Returns the resources of a multiprocessor.
    pub const fn multiprocessor(self) -> Multiprocessor {
        let (warps, blocks) = match self.arch {
            86 | 87 => (48, 16),
            89 | 120 | 121 => (48, 24),
            _ => (64, 32),
        };
        Multiprocessor { warps, blocks, shared_bytes: self.max_shared_bytes() + BLOCK_SHARED_BYTES }
    }
}

/// Values by architecture, for example tile extents or hints.
///
/// ```
/// use cutlet as ct;
///
/// let tile = ct::ByTarget::new([64, 64, 32]).on(90, [128, 256, 64]).on(100, [128, 128, 64]);
/// assert_eq!(tile.value(Some(ct::Target::SM_90A)), &[128, 256, 64]);
/// assert_eq!(tile.value(ct::Device::cpu().target()), &[64, 64, 32]);
/// let mut hints = ct::Hints::new();
/// hints.num_ctas = *ct::ByTarget::new(None).on(90, Some(2)).value(Some(ct::Target::SM_80));
/// assert_eq!(hints.num_ctas, None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByTarget<X> {
    default: X,
    chosen: Vec<(u32, X)>,
}

impl<X> ByTarget<X> {
    /// Creates values with a default, for the cpu device and for architectures without a value of
    /// their own.
    pub fn new(default: X) -> ByTarget<X> {
        ByTarget { default, chosen: Vec::new() }
    }

    /// Sets the value of an architecture: 80, 86, 89, 90, 100, 120. A later value replaces an
    /// earlier one.
    #[must_use]
    pub fn on(mut self, arch: u32, value: X) -> ByTarget<X> {
        self.chosen.push((arch, value));
        self
    }

    /// Returns the value for a target, for example that of
    /// [`Device::target`](crate::Device::target).
    pub fn value(&self, target: Option<Target>) -> &X {
        let own = self.chosen.iter().rev().find(|(arch, _)| target.is_some_and(|target| target.arch == *arch));
        own.map_or(&self.default, |(_, value)| value)
    }
}

/// Shared memory that the system reserves for each tile block, in bytes (from sm_80 on).
const BLOCK_SHARED_BYTES: u32 = 1024;

/// Resources of a multiprocessor, from the table of compute capabilities in the CUDA programming
/// guide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Multiprocessor {
    /// Maximal number of warps.
    pub warps: u32,
    /// Maximal number of tile blocks.
    pub blocks: u32,
    /// Shared memory in bytes.
    pub shared_bytes: u32,
}

impl Multiprocessor {
    /// Number of sub-partitions, which share the warps and registers of a multiprocessor.
    const PARTS: u32 = 4;

    /// Registers of a sub-partition.
    const PART_REGISTERS: u32 = 16_384;

    /// Allocation unit of registers, per lane of a warp.
    const REGISTER_UNIT: u32 = 8;

    /// Returns the number of tile blocks that run at the same time, by their warps, registers per
    /// thread and bytes of shared memory. Returns 0 if one block exceeds a resource.
    ///
    /// ```
    /// let multiprocessor = cutlet::Target::SM_90A.multiprocessor();
    /// assert_eq!(multiprocessor.fitting_blocks(16, 32, 0), 4);
    /// assert_eq!(multiprocessor.fitting_blocks(16, 33, 0), 3);
    /// assert_eq!(multiprocessor.fitting_blocks(4, 32, 100 << 10), 2);
    /// ```
    pub const fn fitting_blocks(self, warps: u32, registers: u32, shared_bytes: u32) -> u32 {
        let registers = if registers < Self::REGISTER_UNIT { Self::REGISTER_UNIT } else { registers };
        let warp_registers = registers.next_multiple_of(Self::REGISTER_UNIT) * 32;
        let by_registers = Self::PARTS * (Self::PART_REGISTERS / warp_registers) / warps;
        let by_warps = self.warps / warps;
        let by_memory = self.shared_bytes / (shared_bytes + BLOCK_SHARED_BYTES);
        let mut least = self.blocks;
        if by_registers < least {
            least = by_registers;
        }
        if by_warps < least {
            least = by_warps;
        }
        if by_memory < least { by_memory } else { least }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.arch, if self.accelerated { "a" } else { "" })
    }
}

/// Names of architectures and GPUs, in small letters.
const GPU_NAMES: [(&str, Target); 15] = {
    const fn of(arch: u32, accelerated: bool) -> Target {
        Target { arch, accelerated }
    }
    [
        ("ampere", Target::SM_80),
        ("a100", Target::SM_80),
        ("a10", of(86, false)),
        ("a40", of(86, false)),
        ("ada", of(89, false)),
        ("l4", of(89, false)),
        ("l40", of(89, false)),
        ("l40s", of(89, false)),
        ("hopper", Target::SM_90A),
        ("h100", Target::SM_90A),
        ("h200", Target::SM_90A),
        ("gh200", Target::SM_90A),
        ("blackwell", of(100, true)),
        ("b200", of(100, true)),
        ("b100", of(100, true)),
    ]
};

/// Returns the target that a text without the right form means: the name of an architecture or
/// of a GPU, or its digits. Of architectures from 90 on, it is the one with all instructions.
fn meant(text: &str) -> Option<Target> {
    let text = text.to_lowercase();
    let name = text.trim_start_matches("nvidia").trim_matches(|c: char| !c.is_alphanumeric());
    if let Some(&(_, target)) = GPU_NAMES.iter().find(|(known, _)| *known == name) {
        return Some(target);
    }
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    let letters: String = name.chars().filter(char::is_ascii_alphabetic).collect();
    // `sm`, `compute` and `cc` with the suffix `a` or `f` of a feature set.
    let is_form = ["", "sm", "compute", "cc"].contains(&letters.trim_end_matches(['a', 'f', 'b']));
    let arch = digits.parse().ok().filter(|_| is_form)?;
    Some(Target { arch, accelerated: arch >= 90 })
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        const KNOWN: [u32; 12] = [80, 86, 87, 88, 89, 90, 100, 103, 107, 110, 120, 121];
        let unknown = || {
            let way_out = match meant(text) {
                Some(meant) if meant.arch < KNOWN[0] => {
                    format!("{meant} is older than sm_80, the least that is supported")
                }
                Some(meant) if KNOWN.contains(&meant.arch) => format!("did you mean {meant}?"),
                _ => "targets are sm_80, sm_86, sm_89, sm_90, sm_90a, sm_100a, sm_120a, …".into(),
            };
            format!("unknown target `{text}`: {way_out}")
        };
        let digits = text.strip_prefix("sm_").ok_or_else(unknown)?;
        let (digits, accelerated) = match digits.strip_suffix('a') {
            Some(rest) => (rest, true),
            None => (digits, false),
        };
        let arch: u32 = digits.parse().map_err(|_| unknown())?;
        if !KNOWN.contains(&arch) || (accelerated && arch < 90) {
            return Err(unknown());
        }
        Ok(Target { arch, accelerated })
    }
}
