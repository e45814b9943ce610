//! Sentence embeddings by BERT's layers (Devlin et al., 2018; MiniLM: Wang et al., 2020;
//! Sentence-BERT: Reimers and Gurevych, 2019).
//!
//! A layer has five kernels: the product of queries, keys and values, attention with a padding
//! mask, and three products. The products have bias and GELU, or bias and residual, as epilogue. A
//! layer norm follows two of them.
//!
//! | kernel | file |
//! |---|---|
//! | sum of the embeddings of token, place and type, layer norm | [`embed`] |
//! | product with bias and GELU or residual | [`linear`] |
//! | attention over the tokens of a sentence | [`attention`] |
//! | layer norm | [`cutlet_kernels::layer_norm`] |
//! | mean over the tokens of a sentence, divided by its norm | [`pool`] |

pub mod attention;
pub mod embed;
pub mod linear;
mod parameters;
pub mod pool;
mod tokenizer;
mod weights;

use std::error::Error;

use cutlet as ct;
use cutlet::{Device, DeviceArray, DeviceView, DeviceViewMut, Stream};
use cutlet_kernels::{Number, layer_norm};

use linear::Epilogue;
use parameters::{Linear, Norm};
pub use tokenizer::Tokenizer;
use weights::Weights;

struct Layer<T> {
    /// Queries, keys and values, one after another along the outputs.
    qkv: Linear<T>,
    attended: Linear<T>,
    attended_norm: Norm<T>,
    inner: Linear<T>,
    outer: Linear<T>,
    outer_norm: Norm<T>,
}
ct::impl_graph_resource!(impl<T: Number> Layer<T> { qkv, attended, attended_norm, inner, outer, outer_norm });

/// A sentence-embedding model. Weights are on a device. A graph can hold or borrow it.
pub struct MiniLm<T> {
    device: Device,
    words: DeviceArray<T, 2>,
    /// Embeddings of the places, with that of the first token type.
    places: DeviceArray<T, 2>,
    norm: Norm<T>,
    layers: Vec<Layer<T>>,
    heads: usize,
    epsilon: f32,
}
ct::impl_graph_resource!(impl<T: Number> MiniLm<T> { words, places, norm, layers });

/// Token ids of sentences on a device, padded to the longest one. A graph can hold or borrow it.
pub struct Batch {
    ids: DeviceArray<i32, 2>,
    lengths: DeviceArray<i32, 1>,
}
ct::impl_graph_resource!(Batch { ids, lengths });

impl Batch {
    /// Copies the ids of sentences to a device.
    ///
    /// # Errors
    /// Those of the copy.
    pub fn new(device: Device, sentences: &[Vec<u32>]) -> ct::Result<Batch> {
        let longest = sentences.iter().map(Vec::len).max().unwrap_or(0);
        let id = |[i, j]: [usize; 2]| sentences[i].get(j).map_or(0, |&id| id as i32);
        let ids = device.from_fn([sentences.len(), longest], id)?;
        Ok(Batch { ids, lengths: device.from_fn([sentences.len()], |[i]| sentences[i].len() as i32)? })
    }

    /// Returns the number of sentences and the number of tokens of the longest one.
    pub fn shape(&self) -> [usize; 2] {
        self.ids.shape()
    }
}

/// Activations of a batch: input and output of a layer; a sum before its layer norm; queries, keys
/// and values; the result of attention; the wide activations. A graph can hold them.
pub type Activations<T> =
    (DeviceArray<T, 2>, DeviceArray<T, 2>, DeviceArray<T, 2>, DeviceArray<T, 2>, DeviceArray<T, 2>);

fn norm<T: Number>(
    stream: &Stream,
    x: DeviceView<T, 2>,
    by: &Norm<T>,
    y: DeviceViewMut<T, 2>,
    epsilon: f32,
) -> ct::Result<()> {
    let [rows, columns] = x.shape();
    let shape = [1, 1, rows, columns];
    layer_norm(stream, x.reshape(shape)?, [by.weight.view(), by.bias.view()], y.reshape(shape)?, epsilon)
}

impl<T: Number> MiniLm<T> {
    /// Copies the weights of a model to a device.
    ///
    /// `tensors` is a file of safetensors with the names of BERT's tensors (f32 or f16), `config`
    /// the file `config.json` of the model.
    ///
    /// # Errors
    /// A tensor is missing, or has another shape than the configuration states.
    pub fn new(device: Device, tensors: &[u8], config: &str) -> Result<MiniLm<T>, Box<dyn Error>> {
        let config: serde_json::Value = serde_json::from_str(config)?;
        let number =
            |name: &str| config[name].as_f64().ok_or_else(|| format!("the configuration has no number {name}"));
        let [width, inner, layers, heads, words, places] = [
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "vocab_size",
            "max_position_embeddings",
        ]
        .map(|name| number(name).map(|x| x as usize));
        let (width, inner, heads, places) = (width?, inner?, heads?, places?);
        let weights = Weights::new(device, tensors)?;
        let mut rows = weights.tensor("embeddings.position_embeddings.weight", &[places, width])?;
        let kind = weights.rows("embeddings.token_type_embeddings.weight", width)?;
        rows.iter_mut().enumerate().for_each(|(at, x)| *x += kind[at % width]);
        let layer = |i: usize| -> Result<Layer<T>, Box<dyn Error>> {
            let name = |part: &str| format!("encoder.layer.{i}.{part}");
            let parts = ["query", "key", "value"].map(|part| name(&format!("attention.self.{part}")));
            Ok(Layer {
                qkv: weights.linear(&parts, [width, width])?,
                attended: weights.linear(&[name("attention.output.dense")], [width, width])?,
                attended_norm: weights.norm(&name("attention.output.LayerNorm"), width)?,
                inner: weights.linear(&[name("intermediate.dense")], [inner, width])?,
                outer: weights.linear(&[name("output.dense")], [width, inner])?,
                outer_norm: weights.norm(&name("output.LayerNorm"), width)?,
            })
        };
        Ok(MiniLm {
            device,
            words: weights.array("embeddings.word_embeddings.weight", [words?, width])?,
            places: weights.copy(&rows, [places, width])?,
            norm: weights.norm("embeddings.LayerNorm", width)?,
            layers: (0..layers?).map(layer).collect::<Result<_, _>>()?,
            heads,
            epsilon: number("layer_norm_eps")? as f32,
        })
    }

    /// Returns the number of elements of an embedding.
    pub fn width(&self) -> usize {
        self.words.shape()[1]
    }

    /// Returns the operations of the products for a number of tokens, without those of attention.
    pub fn flops(&self, tokens: usize) -> f64 {
        let products =
            |layer: &Layer<T>| [&layer.qkv, &layer.attended, &layer.inner, &layer.outer].map(|by| by.weight.len());
        let weights: usize = self.layers.iter().flat_map(products).sum();
        2.0 * weights as f64 * tokens as f64
    }

    /// Allocates the activations of batches of a shape.
    ///
    /// # Errors
    /// Those of the allocation.
    pub fn activations(&self, [sentences, longest]: [usize; 2]) -> ct::Result<Activations<T>> {
        let (tokens, width) = (sentences * longest, self.width());
        let inner = self.layers.first().map_or(0, |layer| layer.inner.bias.shape()[0]);
        let scratch = |columns: usize| self.device.unspecified([tokens, columns]);
        Ok((scratch(width)?, scratch(width)?, scratch(3 * width)?, scratch(width)?, scratch(inner)?))
    }

    /// Queues the embeddings of a batch: a row of length 1 for each sentence. No memory is
    /// allocated.
    ///
    /// # Errors
    /// Those of the launches.
    pub fn forward(
        &self,
        stream: &Stream,
        batch: &Batch,
        (x, sum, qkv, attended, inner): &mut Activations<T>,
        out: DeviceViewMut<f32, 2>,
    ) -> ct::Result<()> {
        let ([sentences, longest], width) = (batch.shape(), self.width());
        if sentences * longest == 0 {
            return Ok(());
        }
        let tables = [self.words.view(), self.places.view()];
        let by = [self.norm.weight.view(), self.norm.bias.view()];
        embed::embed(stream, batch.ids.view(), tables, by, self.epsilon, x.view_mut())?;
        for layer in &self.layers {
            layer.qkv.launch(stream, x, Epilogue::Bias, qkv)?;
            let heads = [sentences, longest, self.heads, width / self.heads];
            let [b, l, h, d] = heads;
            let of = qkv.reshape([b, l, 3, h, d])?;
            attention::attention(stream, of, batch.lengths.view(), attended.view_mut().reshape(heads)?)?;
            layer.attended.launch(stream, attended, Epilogue::Residual(x.view()), sum)?;
            norm(stream, sum.view(), &layer.attended_norm, x.view_mut(), self.epsilon)?;
            layer.inner.launch(stream, x, Epilogue::Gelu, inner)?;
            layer.outer.launch(stream, inner, Epilogue::Residual(x.view()), sum)?;
            norm(stream, sum.view(), &layer.outer_norm, x.view_mut(), self.epsilon)?;
        }
        pool::pool(stream, x.reshape([sentences, longest, width])?, batch.lengths.view(), out)
    }

    /// Returns the embeddings of sentences, one row of length 1 each.
    ///
    /// Sentences of similar lengths are a batch, so that few tokens are padding.
    ///
    /// # Errors
    /// Those of the copies and launches.
    pub fn embed(&self, sentences: &[Vec<u32>]) -> ct::Result<Vec<Vec<f32>>> {
        let mut order: Vec<usize> = (0..sentences.len()).collect();
        order.sort_by_key(|&i| sentences[i].len());
        let mut embeddings = vec![Vec::new(); sentences.len()];
        // At most half of the tokens of a batch are padding.
        for part in order.chunk_by(|&a, &b| padded(sentences[a].len()) == padded(sentences[b].len())) {
            let tokens: Vec<Vec<u32>> = part.iter().map(|&i| sentences[i].clone()).collect();
            let batch = Batch::new(self.device, &tokens)?;
            let mut out = self.device.unspecified([part.len(), self.width()])?;
            let mut space = self.activations(batch.shape())?;
            self.forward(&self.device.default_stream(), &batch, &mut space, out.view_mut())?;
            for (&i, row) in part.iter().zip(out.to_vec()?.chunks_exact(self.width())) {
                embeddings[i] = row.to_vec();
            }
        }
        Ok(embeddings)
    }
}

/// Returns the class of a length: sentences of one class are a batch.
fn padded(length: usize) -> usize {
    length.next_power_of_two().max(16)
}
