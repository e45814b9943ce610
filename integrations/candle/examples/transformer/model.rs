//! A small model of blocks with RMSNorm, attention and a gated MLP, by candle's operations or those
//! of cutlet.

use candle_core::{DType, Device, Module, Result, Tensor};
use candle_nn::{Linear, ops};
use cutlet_candle::{Bits, QuantizedWeight, attention, rms_norm};

/// Source of the operations of a model. Products with weights are candle's in both, except
/// quantized ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operations {
    /// candle's: the norm of candle-nn, attention of products and a softmax.
    Candle,
    /// Those of cutlet-candle.
    Cutlet,
}

/// Extents.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Blocks.
    pub blocks: usize,
    /// Numbers of a token.
    pub width: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values: a divisor of the heads.
    pub key_heads: usize,
    /// Numbers between the two products of an MLP.
    pub hidden: usize,
}

struct Block {
    norms: [Tensor; 2],
    q: Linear,
    k: Linear,
    v: Linear,
    out: Linear,
    gate: Linear,
    up: Linear,
    down: Linear,
    /// The weights that `down` has, too.
    quantized: Option<QuantizedWeight>,
}

/// Weights and extents.
pub struct Model {
    config: Config,
    blocks: Vec<Block>,
}

const EPSILON: f32 = 1e-5;

impl Model {
    /// Random weights. With `bits`, the last product of each MLP has weights of this width, 32 in a
    /// group, which candle's operations receive as ordinary numbers.
    pub fn random(config: Config, bits: Option<Bits>, dtype: DType, device: &Device) -> Result<Model> {
        let Config { width, heads, key_heads, hidden, .. } = config;
        let rows = width / heads * key_heads;
        let weight = |outputs: usize, inputs: usize| -> Result<Tensor> {
            let x = Tensor::randn(0f32, 1.0, (outputs, inputs), &Device::Cpu)?;
            (x / (inputs as f64).sqrt())?.to_dtype(dtype)?.to_device(device)
        };
        let linear = |outputs, inputs| Ok::<_, candle_core::Error>(Linear::new(weight(outputs, inputs)?, None));
        let norm = || (Tensor::rand(0.5f32, 1.5, width, &Device::Cpu)?.to_dtype(dtype)?).to_device(device);
        let block = |_| -> Result<Block> {
            let last = weight(width, hidden)?;
            let quantized = bits.map(|bits| QuantizedWeight::quantize(&last, bits, 32, dtype)).transpose()?;
            let last = quantized.as_ref().map_or(Ok(last), QuantizedWeight::dequantize)?;
            Ok(Block {
                norms: [norm()?, norm()?],
                q: linear(width, width)?,
                k: linear(rows, width)?,
                v: linear(rows, width)?,
                out: linear(width, width)?,
                gate: linear(hidden, width)?,
                up: linear(hidden, width)?,
                down: Linear::new(last, None),
                quantized,
            })
        };
        Ok(Model { config, blocks: (0..config.blocks).map(block).collect::<Result<_>>()? })
    }

    /// Tokens of shape (batch, length, width) to the same; `mask` is that of their length.
    pub fn forward(&self, x: &Tensor, mask: &Tensor, operations: Operations) -> Result<Tensor> {
        let mut x = x.clone();
        for block in &self.blocks {
            let normed = norm(&x, &block.norms[0], operations)?;
            x = (&x + self.attend(block, &normed, mask, operations)?)?;
            let normed = norm(&x, &block.norms[1], operations)?;
            let gated = (block.gate.forward(&normed)?.silu()? * block.up.forward(&normed)?)?;
            let down = match (&block.quantized, operations) {
                (Some(weight), Operations::Cutlet) => weight.forward(&gated)?,
                _ => block.down.forward(&gated)?,
            };
            x = (&x + down)?;
        }
        Ok(x)
    }

    fn attend(&self, block: &Block, x: &Tensor, mask: &Tensor, operations: Operations) -> Result<Tensor> {
        let (batch, length, width) = x.dims3()?;
        let split = |x: Tensor, heads| x.reshape((batch, length, heads, width / self.config.heads))?.transpose(1, 2);
        let q = split(block.q.forward(x)?, self.config.heads)?;
        let (k, v) =
            (split(block.k.forward(x)?, self.config.key_heads)?, split(block.v.forward(x)?, self.config.key_heads)?);
        let scale = 1.0 / ((width / self.config.heads) as f32).sqrt();
        let heads = attend(&q, &k, &v, scale, mask, operations)?;
        block.out.forward(&heads.transpose(1, 2)?.reshape((batch, length, width))?)
    }
}

/// RMSNorm.
pub fn norm(x: &Tensor, weight: &Tensor, operations: Operations) -> Result<Tensor> {
    match operations {
        Operations::Candle => ops::rms_norm(&x.contiguous()?, weight, EPSILON),
        Operations::Cutlet => rms_norm(x, weight, EPSILON),
    }
}

/// Mask that is added to scores: a token sees itself and earlier ones.
pub fn mask(length: usize, dtype: DType, device: &Device) -> Result<Tensor> {
    let hidden = |i: usize| if i % length > i / length { f32::NEG_INFINITY } else { 0.0 };
    let mask = (0..length * length).map(hidden).collect();
    Tensor::from_vec(mask, (length, length), &Device::Cpu)?.to_dtype(dtype)?.to_device(device)
}

/// Causal attention; by candle as its models make it, from products and a softmax.
pub fn attend(q: &Tensor, k: &Tensor, v: &Tensor, scale: f32, mask: &Tensor, operations: Operations) -> Result<Tensor> {
    if operations == Operations::Cutlet {
        return attention(q, k, v, scale, true);
    }
    let (batch, heads, length, dim) = q.dims4()?;
    let repeated = |x: &Tensor| -> Result<Tensor> {
        let key_heads = x.dim(1)?;
        let shape = (batch, key_heads, heads / key_heads, length, dim);
        x.unsqueeze(2)?.broadcast_as(shape)?.reshape((batch, heads, length, dim))
    };
    let scores = (q.contiguous()?.matmul(&repeated(k)?.t()?)? * f64::from(scale))?;
    ops::softmax_last_dim(&scores.broadcast_add(mask)?)?.matmul(&repeated(v)?)
}
