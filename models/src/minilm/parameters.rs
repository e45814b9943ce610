//! Parameters of products and layer norms.

use cutlet as ct;
use cutlet::{DeviceArray, Stream};
use cutlet_kernels::Number;

use super::linear::{Epilogue, linear};

/// Weight and bias of a product: (outputs, inputs) and (outputs).
pub struct Linear<T> {
    pub weight: DeviceArray<T, 2>,
    pub bias: DeviceArray<T, 1>,
}
ct::impl_graph_resource!(impl<T: Number> Linear<T> { weight, bias });

impl<T: Number> Linear<T> {
    /// Queues the product with an epilogue.
    pub fn launch(
        &self,
        stream: &Stream,
        x: &DeviceArray<T, 2>,
        epilogue: Epilogue<T>,
        y: &mut DeviceArray<T, 2>,
    ) -> ct::Result<()> {
        linear(stream, x.view(), self.weight.view(), self.bias.view(), epilogue, y.view_mut())
    }
}

/// Weight and bias of a layer norm.
pub struct Norm<T> {
    pub weight: DeviceArray<T, 1>,
    pub bias: DeviceArray<T, 1>,
}
ct::impl_graph_resource!(impl<T: Number> Norm<T> { weight, bias });
