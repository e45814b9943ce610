//! Resources of a graph: arrays, borrows of arrays, and plain values.

use crate::element::Element;
use crate::runtime::array::packed::PackedDeviceArray;
use crate::runtime::{DeviceArray, DeviceView, DeviceViewMut, Memory};
use crate::types::packed_formats::Narrow;

/// Resource that a [`Graph`](crate::Graph) owns or borrows: arrays, owned or borrowed, views,
/// numbers, and tuples, lists, options and boxes of such.
///
/// Programs may implement this trait; for structs by the macro
/// [`impl_graph_resource!`](crate::impl_graph_resource), without `unsafe`.
///
/// # Safety
/// While the value is held or borrowed, every allocation that `arrays` shows is alive and not
/// written elsewhere. An allocation that is shown as writable has no other use.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be held by a graph",
    note = "arrays, borrows of arrays, views, numbers, and tuples, lists and options of such can; a struct of them \
            by `ct::impl_graph_resource!`"
)]
pub unsafe trait GraphResource {
    /// Calls `visit` with each allocation, and whether it may be written.
    fn arrays(&self, visit: &mut dyn FnMut(&Memory, bool));
}

// SAFETY (of the arrays and views): an array owns its allocation, a unique view borrows it
// uniquely, a view borrows it.
unsafe impl<T: Element, const R: usize> GraphResource for DeviceArray<T, R> {
    fn arrays(&self, visit: &mut dyn FnMut(&Memory, bool)) {
        visit(&self.memory, true);
    }
}

// SAFETY: as above. A part does not borrow its allocation: the graph does not hold it, and refuses
// work on it.
unsafe impl<T: Element, const R: usize> GraphResource for DeviceViewMut<'_, T, R> {
    fn arrays(&self, visit: &mut dyn FnMut(&Memory, bool)) {
        if !self.is_part() {
            visit(self.memory, true);
        }
    }
}

// SAFETY: as above.
unsafe impl<T: Element, const R: usize> GraphResource for DeviceView<'_, T, R> {
    fn arrays(&self, visit: &mut dyn FnMut(&Memory, bool)) {
        if !self.is_part() {
            visit(self.memory, false);
        }
    }
}

// SAFETY: as above.
unsafe impl<F: Narrow, const R: usize> GraphResource for PackedDeviceArray<F, R> {
    fn arrays(&self, visit: &mut dyn FnMut(&Memory, bool)) {
        self.as_words().arrays(visit);
    }
}

// SAFETY: a shared borrow excludes writes.
unsafe impl<H: GraphResource + ?Sized> GraphResource for &H {
    fn arrays(&self, visit: &mut dyn FnMut(&Memory, bool)) {
        (**self).arrays(&mut |memory, _| visit(memory, false));
    }
}

// SAFETY: that of the contained value, which is accessible only by this reference.
unsafe impl<H: GraphResource + ?Sized> GraphResource for &mut H {
    fn arrays(&self, visit: &mut dyn FnMut(&Memory, bool)) {
        (**self).arrays(visit);
    }
}

// SAFETY: as above.
unsafe impl<H: GraphResource + ?Sized> GraphResource for Box<H> {
    fn arrays(&self, visit: &mut dyn FnMut(&Memory, bool)) {
        (**self).arrays(visit);
    }
}

macro_rules! lists {
    ($([$($generic:tt)*] $list:ty;)+) => {$(
        // SAFETY: that of the elements.
        unsafe impl<H: GraphResource, $($generic)*> GraphResource for $list {
            fn arrays(&self, visit: &mut dyn FnMut(&Memory, bool)) {
                self.iter().for_each(|held| held.arrays(visit));
            }
        }
    )+};
}
lists! {
    [] [H];
    [const N: usize] [H; N];
    [] Vec<H>;
    [] Option<H>;
}

macro_rules! values {
    ($($value:ty)+) => {$(
        // SAFETY: the value has no allocation of a device.
        unsafe impl GraphResource for $value {
            fn arrays(&self, _visit: &mut dyn FnMut(&Memory, bool)) {}
        }
    )+};
}
values! {
    bool i8 i16 i32 i64 isize u8 u16 u32 u64 usize f32 f64
    crate::f16 crate::bf16 crate::tf32 crate::f8e4m3fn crate::f8e5m2 crate::f8e5m3fnu crate::f8e8m0fnu
}

macro_rules! tuples {
    ($(($($held:ident)*))+) => {$(
        // SAFETY: that of the elements.
        unsafe impl<$($held: GraphResource),*> GraphResource for ($($held,)*) {
            #[allow(non_snake_case)]
            fn arrays(&self, _visit: &mut dyn FnMut(&Memory, bool)) {
                let ($($held,)*) = self;
                $($held.arrays(_visit);)*
            }
        }
    )+};
}
tuples! {
    () (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) (A B C D E F G H I)
    (A B C D E F G H I J) (A B C D E F G H I J K) (A B C D E F G H I J K L)
}

/// Makes a struct a [`GraphResource`]: name its type and the fields that contain arrays.
///
/// A graph does not hold the arrays of fields that are left out, and refuses work on them.
///
/// ```
/// use cutlet as ct;
///
/// struct Layer<T> {
///     weight: ct::DeviceArray<T, 2>,
///     bias: ct::DeviceArray<T, 1>,
///     epsilon: f32,
/// }
/// ct::impl_graph_resource!(impl<T: ct::Element> Layer<T> { weight, bias });
///
/// struct Model {
///     layers: Vec<Layer<f32>>,
/// }
/// ct::impl_graph_resource!(Model { layers });
///
/// fn scale(x: ct::Array<f32, 1>, y: ct::ArrayMut<f32, 1>, factor: ct::Scalar<f32>) {
///     y.store(ct::bid(0), x.load(ct::bid(0), [2]) * factor);
/// }
///
/// let device = ct::Device::cpu();
/// let layer = Layer { weight: device.full([2, 2], 1.0)?, bias: device.full([2], 0.5)?, epsilon: 0.25 };
/// let (model, out) = (Model { layers: vec![layer] }, device.zeros([2])?);
/// let mut graph = ct::Graph::capture((&model, out), |(model, out)| {
///     let layer = &model.layers[0];
///     ct::launch(scale, 1, (&layer.bias, &mut *out, layer.epsilon))
/// })?;
/// graph.replay()?;
/// assert_eq!(graph.state().1.to_vec()?, [0.125; 2]);
/// # Ok::<(), ct::Error>(())
/// ```
#[macro_export]
macro_rules! impl_graph_resource {
    (impl<$($param:ident $(: $bound:path)?),+> $name:ty { $($field:ident),+ $(,)? }) => {
        // SAFETY: that of the fields.
        #[allow(unsafe_code)]
        unsafe impl<$($param $(: $bound)?),+> $crate::runtime::GraphResource for $name {
            $crate::impl_graph_resource!(@arrays $($field)+);
        }
    };
    ($name:ty { $($field:ident),+ $(,)? }) => {
        // SAFETY: that of the fields.
        #[allow(unsafe_code)]
        unsafe impl $crate::runtime::GraphResource for $name {
            $crate::impl_graph_resource!(@arrays $($field)+);
        }
    };
    (@arrays $($field:ident)+) => {
        fn arrays(&self, visit: &mut dyn ::core::ops::FnMut(&$crate::runtime::Memory, bool)) {
            $($crate::runtime::GraphResource::arrays(&self.$field, visit);)+
        }
    };
}
