//! Rows of `cutlet_kernels::moe`.

use cutlet::element::{bf16, f16};
use cutlet::{Device, DeviceArray};
use cutlet_kernels::moe::{
    Alignment, Experts, Gradients, Router, Rows, Saved, Scores, Workspace, combine, gated_product, gather, product,
};
use cutlet_kernels::norms::Gate;

use crate::filled::numbers;
use crate::row::{Peak, Row, Work};

/// A layer of experts.
#[derive(Clone, Copy)]
struct Layer {
    tokens: usize,
    experts: usize,
    taken: usize,
    hidden: usize,
    between: usize,
    /// Rows of a tile.
    tile: usize,
}

impl Layer {
    fn name(self, kernel: &str) -> String {
        let Layer { tokens, experts, taken, hidden, between, .. } = self;
        format!("{kernel} {tokens} {taken}/{experts} {hidden} {between}")
    }

    fn choice(self, device: Device) -> cutlet::Result<DeviceArray<i32, 2>> {
        let Layer { tokens, experts, taken, .. } = self;
        device.from_fn([tokens, taken], move |[i, j]| ((i * 7 + j * 5 + i / 13) % experts) as i32)
    }

    fn alignment(self, device: Device) -> cutlet::Result<Alignment> {
        let stream = device.default_stream();
        let mut alignment = Alignment::new(&stream, [self.tokens, self.taken], self.experts, self.tile)?;
        // An inspection has no results of launches.
        alignment.launch(&stream, self.choice(device)?.view())?;
        Ok(alignment)
    }

    fn pairs(self) -> usize {
        self.tokens * self.taken
    }

    fn work(self, products: usize, arrays: usize) -> Work {
        let weights = self.experts * self.hidden * self.between * products;
        let flops = 2.0 * (self.pairs() * self.hidden * self.between * products) as f64;
        Work { bytes: 2.0 * (arrays + weights) as f64, flops, peak: Peak::F16 }
    }
}

fn router(layer: Layer) -> Row {
    let Layer { tokens, experts, taken, .. } = layer;
    Row::new(
        format!("router bf16 {tokens} {taken}/{experts}"),
        Work::bytes((tokens * (2 * experts + 8 * taken)) as f64),
        move |device| {
            let logits =
                device.from_fn([tokens, experts], |[i, j]| bf16::from_f32(((i * 13 + j * 29) % 101) as f32))?;
            Ok((logits, device.zeros([tokens, taken])?, device.zeros([tokens, taken])?))
        },
        |(logits, experts, weights)| {
            let router = Router { scores: Scores::Softmax, normalised: true, scale: 1.0 };
            let results = (experts.view_mut(), weights.view_mut());
            router.launch(&logits.device().default_stream(), logits.view(), None, results)
        },
    )
}

fn alignment(layer: Layer) -> Row {
    Row::new(
        layer.name("alignment"),
        Work::bytes(12.0 * layer.pairs() as f64),
        move |device| {
            let stream = device.default_stream();
            let alignment = Alignment::new(&stream, [layer.tokens, layer.taken], layer.experts, layer.tile)?;
            Ok((layer.choice(device)?, alignment))
        },
        |(choice, alignment)| alignment.launch(&choice.device().default_stream(), choice.view()),
    )
}

fn products(layer: Layer) -> [Row; 5] {
    let Layer { tokens, experts, taken, hidden, between, .. } = layer;
    let first = Row::new(
        layer.name("experts_gated f16"),
        layer.work(2, tokens * hidden + layer.pairs() * between),
        move |device| {
            let alignment = layer.alignment(device)?;
            let x = numbers::<f16, 2>(device, [tokens, hidden], 0.0, 1.0)?;
            let w = numbers::<f16, 3>(device, [experts, 2 * between, hidden], 0.0, 0.02)?;
            let out = device.zeros::<f16, 2>([alignment.num_places(), between])?;
            Ok((alignment, x, w, out))
        },
        |(alignment, x, w, out)| {
            let stream = x.device().default_stream();
            gated_product(&stream, (x.view(), Rows::Tokens), w.view(), alignment, Gate::Silu, out.view_mut())
        },
    );
    let second = Row::new(
        layer.name("experts_product f16"),
        layer.work(1, layer.pairs() * (hidden + between)),
        move |device| {
            let alignment = layer.alignment(device)?;
            let h = numbers::<f16, 2>(device, [alignment.num_places(), between], 0.0, 1.0)?;
            let w = numbers::<f16, 3>(device, [experts, hidden, between], 0.0, 0.02)?;
            let out = device.zeros::<f16, 2>([alignment.num_places(), hidden])?;
            Ok((alignment, h, w, out))
        },
        |(alignment, h, w, out)| {
            let stream = h.device().default_stream();
            product(&stream, (h.view(), Rows::Places), w.view(), alignment, out.view_mut())
        },
    );
    let third = Row::new(
        layer.name("experts_combine f16"),
        Work::bytes(2.0 * (hidden * (layer.pairs() + tokens)) as f64),
        move |device| {
            let alignment = layer.alignment(device)?;
            let x = numbers::<f16, 2>(device, [alignment.num_places(), hidden], 0.0, 1.0)?;
            Ok((
                alignment,
                x,
                numbers::<f32, 2>(device, [tokens, taken], 0.5, 0.25)?,
                device.zeros::<f16, 2>([tokens, hidden])?,
            ))
        },
        |(alignment, x, weights, y)| {
            combine(&x.device().default_stream(), x.view(), alignment, weights.view(), y.view_mut())
        },
    );
    let fourth = Row::new(
        layer.name("experts_gather f16"),
        Work::bytes(2.0 * (hidden * (layer.pairs() + tokens)) as f64),
        move |device| {
            let alignment = layer.alignment(device)?;
            let out = device.zeros::<f16, 2>([alignment.num_places(), hidden])?;
            Ok((alignment, numbers::<f16, 2>(device, [tokens, hidden], 0.0, 1.0)?, out))
        },
        |(alignment, x, out)| gather(&x.device().default_stream(), x.view(), alignment, None, out.view_mut()),
    );
    let fifth = Row::new(
        layer.name("experts_gated_places f16"),
        layer.work(2, layer.pairs() * (hidden + between)),
        move |device| {
            let alignment = layer.alignment(device)?;
            let x = numbers::<f16, 2>(device, [alignment.num_places(), hidden], 0.0, 1.0)?;
            let w = numbers::<f16, 3>(device, [experts, 2 * between, hidden], 0.0, 0.02)?;
            let out = device.zeros::<f16, 2>([alignment.num_places(), between])?;
            Ok((alignment, x, w, out))
        },
        |(alignment, x, w, out)| {
            let stream = x.device().default_stream();
            gated_product(&stream, (x.view(), Rows::Places), w.view(), alignment, Gate::Silu, out.view_mut())
        },
    );
    [first, second, third, fourth, fifth]
}

/// The whole layer of experts, forward for inference, or forward and backward for training.
fn layer_of_experts(layer: Layer, training: bool) -> Row {
    let Layer { tokens, experts, taken, hidden, between, .. } = layer;
    let name = if training { "experts_training bf16" } else { "experts_forward bf16" };
    Row::new(
        layer.name(name),
        layer.work(if training { 9 } else { 3 }, tokens * hidden * 2),
        move |device| {
            let alignment = layer.alignment(device)?;
            let [x, dy] = [1.0, 0.01].map(|spread| numbers::<bf16, 2>(device, [tokens, hidden], 0.0, spread));
            let first = numbers::<bf16, 3>(device, [experts, 2 * between, hidden], 0.0, 0.02)?;
            let second = numbers::<bf16, 3>(device, [experts, hidden, between], 0.0, 0.02)?;
            let weights = [numbers::<f32, 2>(device, [tokens, taken], 0.5, 0.25)?, device.zeros([tokens, taken])?];
            let [y, dx] = [0; 2].map(|_| device.zeros::<bf16, 2>([tokens, hidden]));
            let shapes = if training { [first.shape(), second.shape()] } else { [[0; 3]; 2] };
            let [dfirst, dsecond] = shapes.map(|shape| device.zeros::<bf16, 3>(shape));
            let stream = device.default_stream();
            let saved = if training { Some(Saved::new(&stream, &alignment, [hidden, between])?) } else { None };
            let work = if training { None } else { Some(Workspace::new(&stream, &alignment, [hidden, between])?) };
            let gradients = [dfirst?, dsecond?];
            Ok(((alignment, saved, work), [x?, dy?], [first, second], weights, [y?, dx?], gradients))
        },
        move |((alignment, saved, work), [x, dy], [first, second], [weights, dweights], [y, dx], [dfirst, dsecond])| {
            let (stream, gate) = (x.device().default_stream(), Gate::Silu);
            let experts = Experts { gate, weights: [first.view(), second.view()] };
            if let Some(work) = work {
                return experts.forward(&stream, x.view(), alignment, weights.view(), work, y.view_mut());
            }
            let Some(saved) = saved else { return Ok(()) };
            experts.forward_saved(&stream, x.view(), alignment, weights.view(), saved, y.view_mut())?;
            let of_experts = [dfirst.view_mut(), dsecond.view_mut()];
            let gradients = Gradients { dx: dx.view_mut(), dweights: dweights.view_mut(), of_experts };
            experts.backward(&stream, saved, dy.view(), alignment, weights.view(), gradients)
        },
    )
}

/// Returns the rows.
pub fn rows() -> Vec<Row> {
    let layers = [
        Layer { tokens: 8192, experts: 64, taken: 8, hidden: 2048, between: 1408, tile: 128 },
        Layer { tokens: 4096, experts: 8, taken: 2, hidden: 4096, between: 14336, tile: 128 },
        Layer { tokens: 64, experts: 8, taken: 2, hidden: 4096, between: 14336, tile: 16 },
    ];
    let of_layer = |layer: Layer| {
        let whole = [layer_of_experts(layer, false), layer_of_experts(layer, true)];
        [router(layer), alignment(layer)].into_iter().chain(products(layer)).chain(whole)
    };
    layers.into_iter().flat_map(of_layer).collect()
}
