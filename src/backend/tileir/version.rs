//! Versions of the bytecode.

use std::fmt;
use std::str::FromStr;

use crate::target::Target;

/// A version of the Tile IR bytecode: 13.1 to 13.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(u8);

impl Version {
    /// 13.1: the first version; Blackwell.
    pub const V13_1: Version = Version(1);
    /// 13.2: adds Ampere and Ada.
    pub const V13_2: Version = Version(2);
    /// 13.3: adds Hopper.
    pub const V13_3: Version = Version(3);
    /// 13.4.
    pub const V13_4: Version = Version(4);
    /// 13.5.
    pub const V13_5: Version = Version(5);
    /// All versions, oldest first.
    pub const ALL: [Version; 5] = [Self::V13_1, Self::V13_2, Self::V13_3, Self::V13_4, Self::V13_5];

    /// Returns the minor version number.
    pub const fn minor(self) -> u8 {
        self.0
    }

    pub(super) fn from_minor(minor: u8) -> Option<Version> {
        Version::ALL.into_iter().find(|v| v.0 == minor)
    }

    /// Returns the first version whose tools support the target.
    pub fn first_for(target: Target) -> Version {
        match target.arch {
            80..90 => Version::V13_2,
            90..100 => Version::V13_3,
            107 => Version::V13_4,
            _ => Version::V13_1,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "13.{}", self.0)
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Version, String> {
        let version = Version::ALL.into_iter().find(|v| v.to_string() == text);
        version.ok_or_else(|| format!("unknown bytecode version `{text}`: expected 13.1, 13.2, 13.3, 13.4 or 13.5"))
    }
}
