//! Rows of `cutlet_kernels::images`.

use cutlet as ct;
use cutlet::element::f16;
use cutlet::{Device, DeviceArray};
use cutlet_kernels::images::{Convolution, Window, max_pool, resize_bilinear};

use crate::filled::numbers;
use crate::row::{Peak, Row, Work};

/// A layer: side of the images, input and output channels, side of the window, stride, groups.
#[derive(Clone, Copy)]
struct Layer {
    batch: usize,
    side: usize,
    inputs: usize,
    outputs: usize,
    window: usize,
    stride: usize,
    groups: usize,
}

struct Arrays {
    convolution: Convolution,
    x: DeviceArray<f16, 4>,
    w: DeviceArray<f16, 4>,
    bias: DeviceArray<f16, 1>,
    y: DeviceArray<f16, 4>,
}

impl Layer {
    fn arrays(self, device: Device) -> ct::Result<Arrays> {
        let Layer { batch, side, inputs, outputs, window, stride, groups } = self;
        let padding = [window / 2; 2];
        let convolution = Convolution { stride: [stride; 2], padding, dilation: [1, 1], groups };
        let (x, w) = ([batch, side, side, inputs], [window, window, inputs / groups, outputs]);
        let y = convolution.output_shape(x, w);
        let uniform = |shape, scale| numbers::<f16, 4>(device, shape, 0.0, scale);
        let bias = device.zeros([outputs])?;
        Ok(Arrays { convolution, x: uniform(x, 1.0)?, w: uniform(w, 0.05)?, bias, y: uniform(y, 1.0)? })
    }

    fn work(self) -> Work {
        let Layer { batch, side, inputs, outputs, window, stride, groups } = self;
        let results = batch * side.div_ceil(stride).pow(2) * outputs;
        let weights = window * window * inputs / groups;
        Work {
            bytes: 2.0 * (batch * side * side * inputs + results + weights * outputs) as f64,
            flops: 2.0 * (results * weights) as f64,
            peak: Peak::F16,
        }
    }

    fn name(self, kind: &str) -> String {
        let Layer { batch, side, inputs, outputs, window, stride, groups } = self;
        format!("{kind} f16 {batch} {side} {side} {inputs} to {outputs} by {window}x{window}/{stride} groups {groups}")
    }

    fn rows(self) -> Vec<Row> {
        let open = move |device| self.arrays(device);
        vec![
            Row::new(self.name("convolution"), self.work(), open, |arrays| {
                let Arrays { convolution, x, w, bias, y } = arrays;
                let stream = x.device().default_stream();
                let added = (Some(bias.view()), None);
                convolution.forward_with(&stream, x.view(), w.view(), added, |sum| sum.relu(), y.view_mut())
            }),
            Row::new(self.name("convolution input gradient"), self.work(), open, |arrays| {
                let Arrays { convolution, x, w, y, .. } = arrays;
                convolution.input_gradient(&x.device().default_stream(), y.view(), w.view(), x.view_mut())
            }),
            Row::new(self.name("convolution weight gradient"), self.work(), open, |arrays| {
                let Arrays { convolution, x, w, y, .. } = arrays;
                convolution.weight_gradient(&x.device().default_stream(), x.view(), y.view(), w.view_mut())
            }),
        ]
    }
}

/// Returns the rows: layers of ResNet-50 (He et al., 2015), a layer of 256 channels, and a
/// depthwise one of MobileNet.
pub fn rows() -> Vec<Row> {
    let layer =
        |side, inputs, outputs, window, stride| Layer { batch: 32, side, inputs, outputs, window, stride, groups: 1 };
    let layers = [
        layer(56, 256, 256, 3, 1),
        layer(56, 64, 64, 3, 1),
        layer(28, 128, 128, 3, 1),
        layer(14, 256, 256, 3, 1),
        layer(7, 512, 512, 3, 1),
        layer(56, 64, 256, 1, 1),
        layer(56, 256, 128, 1, 1),
        layer(56, 128, 128, 3, 2),
        Layer { groups: 32, ..layer(28, 256, 256, 3, 1) },
        Layer { groups: 256, ..layer(28, 256, 256, 3, 1) },
    ];
    let mut rows: Vec<Row> = layers.into_iter().flat_map(Layer::rows).collect();
    let bytes = 2.0 * (32 * 64 * (112 * 112 + 56 * 56)) as f64;
    rows.push(Row::new(
        "max_pool f16 32 112 112 64 by 3x3/2",
        Work::bytes(bytes),
        |device| Ok((device.zeros::<f16, 4>([32, 112, 112, 64])?, device.zeros::<f16, 4>([32, 56, 56, 64])?)),
        |(x, y)| {
            let window = Window { size: [3, 3], stride: [2, 2], padding: [1, 1] };
            max_pool(&x.device().default_stream(), window, x.view(), y.view_mut())
        },
    ));
    rows.push(Row::new(
        "resize_bilinear f16 32 56 56 256 to 112 112",
        Work::bytes(2.0 * (32 * 256 * (112 * 112 + 56 * 56)) as f64),
        |device| Ok((device.zeros::<f16, 4>([32, 56, 56, 256])?, device.zeros::<f16, 4>([32, 112, 112, 256])?)),
        |(x, y)| resize_bilinear(&x.device().default_stream(), x.view(), y.view_mut()),
    ));
    rows
}
