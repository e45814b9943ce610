//! State of loops and branches: [`LoopState`], for tiles, scalars, tuples, arrays, and for structs
//! by the macro [`impl_loop_state!`](crate::impl_loop_state).

use crate::element::Element;
use crate::tile::{Handle, Ptr, PtrTile, Scalar, Tile, ValueHandle};
use crate::util::collect::CollectVec as _;

/// State of a loop or branch, which is an argument and the result of its body: tiles, scalars,
/// pointers, and tuples, arrays, vectors and structs of these.
///
/// Arrays in memory are not state: a body simply uses them.
///
/// Programs may implement this trait, for structs by the macro
/// [`impl_loop_state!`](crate::impl_loop_state).
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// fn thrice<S: ct::ops::LoopState>(start: S, step: impl Fn(S) -> S) -> S {
///     ct::fold(..3, start, |state, _| step(state))
/// }
/// let (n, x) = thrice((ct::scalar(0), ct::ones::<f32, 1>([4])), |(n, x)| (n + 1, x * 2.0));
/// ct::assert!(n.eq(3) & x.eq(8.0).all(0).item());
/// # });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the state of a loop or the result of a branch",
    note = "state is a `Tile`, a `Scalar`, a pointer, or a tuple, array, `Vec` or struct of these (`cutlet::impl_loop_state!` for structs); \
            a host number becomes a `Scalar` by `ct::scalar(x)`; \
            see docs/common_errors.md"
)]
pub trait LoopState: Sized {
    /// Appends the values of this state, in a fixed order.
    #[doc(hidden)]
    fn flatten(&self, out: &mut Values);

    /// Returns the same structure with other values, in the order of [`LoopState::flatten`].
    #[doc(hidden)]
    fn unflatten(&self, from: &mut Values) -> Self;
}

/// A queue of recorded values.
///
/// ```
/// # use cutlet::doctest::*;
/// # on_cpu(|| {
/// // `ct::impl_loop_state!` uses it; kernels do not.
/// struct Pair { a: Scalar<i32>, b: Scalar<i32> }
/// ct::impl_loop_state!(Pair { a, b });
/// let pair = ct::fold(..3, Pair { a: ct::scalar(0), b: ct::scalar(1) }, |Pair { a, b }, _| Pair { a: b, b: a + b });
/// ct::assert!(pair.a.eq(2));
/// # });
/// ```
#[derive(Debug, Default)]
pub struct Values(std::collections::VecDeque<ValueHandle>);

impl Values {
    /// The values of a state.
    pub(crate) fn of(state: &impl LoopState) -> Vec<ValueHandle> {
        let mut values = Values::default();
        state.flatten(&mut values);
        values.0.into()
    }

    /// `template` with these values.
    pub(crate) fn into_state<S: LoopState>(template: &S, values: Vec<ValueHandle>) -> S {
        template.unflatten(&mut Values(values.into()))
    }

    fn take(&mut self) -> ValueHandle {
        self.0.pop_front().expect("as many values as were flattened")
    }
}

impl<T: Element, const R: usize> LoopState for Tile<T, R> {
    fn flatten(&self, out: &mut Values) {
        out.0.push_back(self.raw());
    }
    fn unflatten(&self, from: &mut Values) -> Self {
        Tile::from_raw(from.take())
    }
}

impl<T: Element> LoopState for Scalar<T> {
    fn flatten(&self, out: &mut Values) {
        out.0.push_back(self.raw());
    }
    fn unflatten(&self, from: &mut Values) -> Self {
        Scalar::from_raw(from.take())
    }
}

impl<T, const R: usize> LoopState for PtrTile<T, R> {
    fn flatten(&self, out: &mut Values) {
        out.0.push_back(self.raw());
    }
    fn unflatten(&self, from: &mut Values) -> Self {
        PtrTile::from_raw(from.take())
    }
}

impl<T> LoopState for Ptr<T> {
    fn flatten(&self, out: &mut Values) {
        out.0.push_back(self.raw());
    }
    fn unflatten(&self, from: &mut Values) -> Self {
        Ptr::from_raw(from.take())
    }
}

impl<S: LoopState, const N: usize> LoopState for [S; N] {
    fn flatten(&self, out: &mut Values) {
        self.iter().for_each(|s| s.flatten(out));
    }
    fn unflatten(&self, from: &mut Values) -> Self {
        std::array::from_fn(|i| self[i].unflatten(from))
    }
}

impl<S: LoopState> LoopState for Vec<S> {
    fn flatten(&self, out: &mut Values) {
        self.iter().for_each(|s| s.flatten(out));
    }
    fn unflatten(&self, from: &mut Values) -> Self {
        self.iter().map(|s| s.unflatten(from)).collect_vec()
    }
}

macro_rules! tuple_state {
    ($(($($name:ident $index:tt),*))+) => {$(
        #[allow(clippy::unused_unit)]
        impl<$($name: LoopState),*> LoopState for ($($name,)*) {
            fn flatten(&self, _out: &mut Values) {
                $(self.$index.flatten(_out);)*
            }
            fn unflatten(&self, _from: &mut Values) -> Self {
                ($(self.$index.unflatten(_from),)*)
            }
        }
    )+};
}
tuple_state! {
    ()
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10)
    (A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11)
}

/// Makes a struct a [`LoopState`](crate::ops::LoopState): name its type and all of its fields, each
/// of which is one.
///
/// ```
/// use cutlet as ct;
/// use cutlet::prelude::*;
///
/// struct Softmax<T> {
///     max: Tile<T, 2>,
///     sum: Tile<T, 2>,
/// }
/// ct::impl_loop_state!(impl<T: Float> Softmax<T> { max, sum });
///
/// struct Counter {
///     n: Scalar<i32>,
/// }
/// ct::impl_loop_state!(Counter { n });
///
/// # ct::Launch::new(1).backend(ct::Backend::Cpu).launch(|| {
/// let counted = ct::fold(..3, Counter { n: ct::scalar(0) }, |counter, _| Counter { n: counter.n + 2 });
/// ct::assert!(counted.n.eq(6));
/// # }, ())?;
/// # Ok::<(), ct::Error>(())
/// ```
#[macro_export]
macro_rules! impl_loop_state {
    (impl<$($param:ident $(: $bound:path)?),+> $name:ty { $($field:ident),+ $(,)? }) => {
        impl<$($param $(: $bound)?),+> $crate::ops::LoopState for $name {
            $crate::impl_loop_state!(@methods $($field)+);
        }
    };
    ($name:ident { $($field:ident),+ $(,)? }) => {
        impl $crate::ops::LoopState for $name {
            $crate::impl_loop_state!(@methods $($field)+);
        }
    };
    (@methods $($field:ident)+) => {
        fn flatten(&self, out: &mut $crate::ops::Values) {
            let Self { $($field),+ } = self;
            $($crate::ops::LoopState::flatten($field, out);)+
        }
        fn unflatten(&self, from: &mut $crate::ops::Values) -> Self {
            let Self { $($field),+ } = self;
            Self { $($field: $crate::ops::LoopState::unflatten($field, from)),+ }
        }
    };
}
