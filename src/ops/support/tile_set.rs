//! Operands of reductions and scans: one tile, or several of one shape.

use crate::element::{ByteSized, Element};
use crate::ir::Literal;
use crate::sealed::Sealed;
use crate::tile::{Handle, Scalar, Tile, ValueHandle};

/// A tile, or a tuple or array of tiles of one shape: the operands of [`reduce`](crate::reduce) and
/// [`scan`](crate::scan). The closure receives one element of each, in the same form.
///
/// This trait is sealed.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// let (x, i) = (ct::astile([3, 9, 1, 4]), ct::arange(0..4));
/// let (sum, last) = ct::reduce((x, i), 0, (0, 0), |(sum, last), (x, i)| (sum + x, last.max(i)));
/// ct::assert!(sum.eq(17) & last.eq(3));
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be reduced or scanned",
    note = "take a `Tile` of numbers or bool, or a tuple or array of such tiles of one shape"
)]
pub trait TileSet: Sealed + Copy {
    /// One element of each: [`Scalar`]s in the form of the tiles.
    type Elements: Copy;
    /// The neutral element of each: host values in the form of the tiles.
    type Identity: Copy;
    #[doc(hidden)]
    fn raws(self, out: &mut Vec<ValueHandle>);
    #[doc(hidden)]
    fn unflatten(from: &mut dyn Iterator<Item = ValueHandle>) -> Self;
    #[doc(hidden)]
    fn elements(from: &mut dyn Iterator<Item = ValueHandle>) -> Self::Elements;
    #[doc(hidden)]
    fn yields(elements: Self::Elements, out: &mut Vec<ValueHandle>);
    #[doc(hidden)]
    fn identities(identity: Self::Identity, out: &mut Vec<Literal>);
}

/// A host value as a literal of the IR.
pub(crate) fn literal<T: Element>(value: T) -> Literal {
    Literal { dtype: T::DTYPE, bits: value.to_bits() }
}

fn next(from: &mut dyn Iterator<Item = ValueHandle>) -> ValueHandle {
    from.next().expect("one value for each tile")
}

impl<T: ByteSized, const R: usize> TileSet for Tile<T, R> {
    type Elements = Scalar<T>;
    type Identity = T;
    fn raws(self, out: &mut Vec<ValueHandle>) {
        out.push(self.raw());
    }
    fn unflatten(from: &mut dyn Iterator<Item = ValueHandle>) -> Self {
        Tile::from_raw(next(from))
    }
    fn elements(from: &mut dyn Iterator<Item = ValueHandle>) -> Scalar<T> {
        Scalar::from_raw(next(from))
    }
    fn yields(element: Scalar<T>, out: &mut Vec<ValueHandle>) {
        out.push(element.raw());
    }
    fn identities(identity: T, out: &mut Vec<Literal>) {
        out.push(literal(identity));
    }
}

impl<X: TileSet, const N: usize> TileSet for [X; N] {
    type Elements = [X::Elements; N];
    type Identity = [X::Identity; N];
    fn raws(self, out: &mut Vec<ValueHandle>) {
        self.into_iter().for_each(|x| x.raws(out));
    }
    fn unflatten(from: &mut dyn Iterator<Item = ValueHandle>) -> Self {
        std::array::from_fn(|_| X::unflatten(from))
    }
    fn elements(from: &mut dyn Iterator<Item = ValueHandle>) -> Self::Elements {
        std::array::from_fn(|_| X::elements(from))
    }
    fn yields(elements: Self::Elements, out: &mut Vec<ValueHandle>) {
        elements.into_iter().for_each(|x| X::yields(x, out));
    }
    fn identities(identity: Self::Identity, out: &mut Vec<Literal>) {
        identity.into_iter().for_each(|x| X::identities(x, out));
    }
}

macro_rules! tuples {
    ($($($name:ident $index:tt),+;)+) => {$(
        impl<$($name: TileSet),+> TileSet for ($($name,)+) {
            type Elements = ($($name::Elements,)+);
            type Identity = ($($name::Identity,)+);
            fn raws(self, out: &mut Vec<ValueHandle>) {
                $(self.$index.raws(out);)+
            }
            fn unflatten(from: &mut dyn Iterator<Item = ValueHandle>) -> Self {
                ($($name::unflatten(from),)+)
            }
            fn elements(from: &mut dyn Iterator<Item = ValueHandle>) -> Self::Elements {
                ($($name::elements(from),)+)
            }
            fn yields(elements: Self::Elements, out: &mut Vec<ValueHandle>) {
                $($name::yields(elements.$index, out);)+
            }
            fn identities(identity: Self::Identity, out: &mut Vec<Literal>) {
                $($name::identities(identity.$index, out);)+
            }
        }
    )+};
}
tuples! {
    A 0;
    A 0, B 1;
    A 0, B 1, C 2;
    A 0, B 1, C 2, D 3;
    A 0, B 1, C 2, D 3, E 4;
    A 0, B 1, C 2, D 3, E 4, F 5;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6;
    A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7;
}
