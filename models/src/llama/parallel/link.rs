//! The arrays of a rank for sums over ranks, and the sums.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, Stream};

use super::flags::Flags;
use super::gathered;
use super::shared::shared;
use super::sum::{Phase, Target, add, is_early};
use super::words::{Patience, Words};
use super::{Method, Shard};
use crate::llama::Real;
use crate::llama::layers::{Activations, Plan};
use crate::llama::step::Chosen;

/// The arrays of a rank for the sums of a pass.
pub(super) struct Link<T> {
    pub shard: Shard,
    /// Parts of the sums after attention and of the second product, of this rank or of all ranks.
    parts: [Vec<DeviceArray<T, 2>>; 2],
    /// Sums of few rows, or of many.
    words: Option<Words>,
    flags: Option<Flags>,
    choice: Option<Words>,
    /// The largest logit and the token of each rank, of shape (sequences, 2 · ranks).
    pairs: DeviceArray<f32, 2>,
    failures: DeviceArray<i32, 1>,
    /// Limit of the polls of a kernel. 0: kernels send and do not wait.
    pub polls: i32,
    /// Declared last: the stream of the work on these arrays.
    stream: Stream,
}
ct::impl_graph_resource!(impl<T: Element> Link<T> { parts, words, flags, choice, pairs, failures });

impl<T> Drop for Link<T> {
    fn drop(&mut self) {
        // The memory of peers may be released after this.
        let _ = self.stream.synchronize();
    }
}

impl<T: Real> Link<T> {
    /// Allocates the arrays of all ranks for states of a shape, and for the choice of the tokens of
    /// sequences, if any.
    #[track_caller]
    pub fn all(
        streams: &[Stream],
        method: &Method,
        shape: [usize; 2],
        sequences: Option<usize>,
    ) -> ct::Result<Vec<Link<T>>> {
        let ranks = streams.len();
        let own = |stream: &Stream| Ok(vec![stream.device().zeros(shape)?]);
        let mut parts = [const { Vec::new() }; 2];
        let (mut words, mut flags, mut choice) = (Vec::new(), Vec::new(), Vec::new());
        let is_by_words = matches!(method, Method::Peers { rows } if shape[0] <= *rows);
        for parts in &mut parts {
            *parts = match method {
                Method::Peers { .. } if !is_by_words => shared::<T, 2>(streams, shape)?,
                _ => streams.iter().map(own).collect::<ct::Result<_>>()?,
            };
        }
        if matches!(method, Method::Peers { .. }) {
            match is_by_words {
                true => words = Words::of_states(streams, shape)?,
                false => flags = Flags::new(streams, shape)?,
            }
            if let Some(sequences) = sequences {
                choice = Words::new(streams, 2 * sequences, sequences)?;
            }
        }
        let ([first, second], [mut words, mut choice]) = (parts, [words, choice].map(Vec::into_iter));
        let (mut flags, parts) = (flags.into_iter(), first.into_iter().zip(second));
        let rest = parts.zip(streams).enumerate();
        rest.map(|(rank, ((first, second), stream))| {
            Ok(Link {
                shard: Shard { rank, ranks },
                parts: [first, second],
                words: words.next(),
                flags: flags.next(),
                choice: choice.next(),
                pairs: stream.device().zeros([sequences.unwrap_or(0), 2 * ranks])?,
                failures: stream.device().zeros([1])?,
                polls: 0,
                stream: stream.clone(),
            })
        })
        .collect()
    }

    /// Returns the part of this rank of a sum: 0 after attention, 1 of the second product.
    pub fn part(&mut self, which: usize) -> &mut DeviceArray<T, 2> {
        let parts = &mut self.parts[which];
        let at = if parts.len() > 1 { self.shard.rank } else { 0 };
        &mut parts[at]
    }

    pub fn pairs(&mut self) -> &mut DeviceArray<f32, 2> {
        &mut self.pairs
    }

    /// Returns true if a wait for another rank has ended without its data.
    pub fn has_failed(&self) -> ct::Result<bool> {
        Ok(self.failures.to_vec()? != [0])
    }

    /// Queues the sum of the parts over ranks by the memory of peers.
    pub fn sum_of_peers(&mut self, which: usize, target: Target<T>, (plan, phase): (&Plan, Phase)) -> ct::Result<()> {
        let mut patience = Patience { polls: self.polls, failures: &mut self.failures };
        let how = (phase, is_early(plan.early));
        let (stream, parts) = (&self.stream, &self.parts[which]);
        match (&mut self.words, &mut self.flags) {
            (Some(words), _) => words.sum(stream, parts[0].view(), target, &mut patience, how),
            (None, Some(flags)) => flags.sum(stream, parts, target, &mut patience, how),
            (None, None) => Ok(()),
        }
    }

    /// Queues the state after a sum that is in the part of this rank.
    pub fn add(&mut self, which: usize, target: Target<T>, plan: &Plan) -> ct::Result<()> {
        let stream = self.stream.clone();
        add(&stream, self.part(which).view(), target, is_early(plan.early))
    }

    /// Queues the choice of tokens by the memory of peers. `first`: the first token of the rank.
    pub fn choose(&mut self, chosen: &mut Chosen<T>, first: usize, (plan, phase): (&Plan, Phase)) -> ct::Result<()> {
        let mut patience = Patience { polls: self.polls, failures: &mut self.failures };
        let Some(choice) = &mut self.choice else { return Ok(()) };
        let logits = (chosen.largest.view(), chosen.columns.view());
        choice.choose(&self.stream, logits, first, &mut chosen.tokens, &mut patience, (phase, is_early(plan.early)))
    }

    /// Queues the pair of this rank for a choice by a sum of pairs.
    pub fn put_pair(&mut self, chosen: &Chosen<T>, first: usize) -> ct::Result<()> {
        let logits = (chosen.largest.view(), chosen.columns.view());
        gathered::put(&self.stream, logits, first, &mut self.pairs, self.shard)
    }

    /// Queues the choice from the sum of pairs.
    pub fn pick_pair(&mut self, chosen: &mut Chosen<T>) -> ct::Result<()> {
        gathered::pick(&self.stream, &self.pairs, &mut chosen.tokens)
    }
}

/// Returns the target of a sum: 0 after attention, 1 of the second product. `end`: the weight of
/// the norm after the last layer.
pub(super) fn target<'a, T: Real>(
    act: &'a mut Activations<T>,
    which: usize,
    end: Option<&'a DeviceArray<T, 1>>,
) -> Target<'a, T> {
    let Activations { states: [state, next], squares, .. } = act;
    let (residual, y) = if which == 0 { (state, next) } else { (next, state) };
    let end = end.map(DeviceArray::view);
    Target { residual: residual.view(), y: y.view_mut(), squares: squares.view_mut(), end }
}
