//! Packed arrays of random kernels.

use cutlet as ct;
use cutlet::packed::{PackedArray, PackedArrayMut};

use super::ops::Narrow;
use super::program::Step;
use super::trace::{Given, Tracer};

/// Applies a macro to every type of packed arrays: variant, type, format of codes.
macro_rules! each_packed {
    ($then:ident) => {
        $then! {
            U1 u1 Narrow::UInt(1), I2 i2 Narrow::Int(2), U3 u3 Narrow::UInt(3), U4 u4 Narrow::UInt(4),
            F4 f4e2m1 Narrow::Float(2, 1), I5 i5 Narrow::Int(5), F6 f6e3m2 Narrow::Float(3, 2), I7 i7 Narrow::Int(7)
        }
    };
}
pub(super) use each_packed;

macro_rules! packed {
    ($($variant:ident $name:ident $narrow:expr),+) => {
        /// A type of packed arrays.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Packed {
            $($variant,)+
        }

        impl Packed {
            pub const ALL: &'static [Packed] = &[$(Packed::$variant,)+];

            pub fn name(self) -> &'static str {
                match self {
                    $(Packed::$variant => stringify!($name),)+
                }
            }

            pub fn narrow(self) -> Narrow {
                match self {
                    $(Packed::$variant => $narrow,)+
                }
            }
        }

        /// The arrays that are read: of each type one or none.
        pub type Reads = ($(Vec<PackedArray<ct::packed::$name, 2>>,)+);
        /// The arrays that are written.
        pub type Writes = ($(Vec<PackedArrayMut<ct::packed::$name, 2>>,)+);

        /// All packed arrays.
        pub struct All {
            $($name: (Vec<PackedArray<ct::packed::$name, 2>>, Vec<PackedArrayMut<ct::packed::$name, 2>>),)+
        }

        impl From<(Reads, Writes)> for All {
            fn from((reads, writes): (Reads, Writes)) -> All {
                let ($($name,)+) = reads;
                let reads = All { $($name: ($name, vec![]),)+ };
                let ($($name,)+) = writes;
                All { $($name: (reads.$name.0, $name),)+ }
            }
        }

        $(
            impl Given for PackedArray<ct::packed::$name, 2> {
                fn given(tracer: &Tracer<'_>, _: &Step) -> Self {
                    tracer.packed.$name.0[0]
                }
            }
            impl Given for PackedArrayMut<ct::packed::$name, 2> {
                fn given(tracer: &Tracer<'_>, _: &Step) -> Self {
                    tracer.packed.$name.1[0]
                }
            }
        )+
    };
}
each_packed!(packed);

impl Packed {
    /// Returns the packed type of an array type in a form.
    pub fn of(ty: &str) -> Option<Packed> {
        let ty = ty.replace(' ', "");
        let name =
            ty.strip_prefix("PackedArrayMut<ct::packed::").or_else(|| ty.strip_prefix("PackedArray<ct::packed::"))?;
        Packed::ALL.iter().copied().find(|packed| name.split(',').next() == Some(packed.name()))
    }

    /// Returns the index of its array among all arrays.
    pub fn place(self) -> usize {
        super::kind::Kind::ARRAYS.len() + 1 + self as usize
    }
}
