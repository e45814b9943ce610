//! Passes: a prefill of sequences, and decode steps of one token of each sequence.

use cutlet as ct;
use cutlet::prelude::*;
use cutlet::{DeviceArray, DeviceView, Graph, Stream};
use cutlet_kernels::attention::{Decode, Scratch};
use cutlet_kernels::order::{Draws, Sampling, largest_of_groups};
use cutlet_kernels::products::Workspace;

use super::cache::Cache;
use super::config::Product;
use super::embed::{Step, embed, pick};
use super::layers::{Activations, Attend, Part, Plan, group, group_of_logits, multiply, product};
use super::{Llama, Real};

/// Choice of the next token from logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The token of the largest logit.
    Greedy,
    /// A random token by its probability, with a seed.
    Sampled(u64),
}

/// Logits and chosen tokens of sequences.
pub(super) struct Chosen<T> {
    /// Logits, of shape (sequences, vocabulary).
    pub(super) logits: DeviceArray<T, 2>,
    /// The largest logits of groups and their tokens, of shape (groups, sequences).
    pub(super) largest: DeviceArray<f32, 2>,
    pub(super) columns: DeviceArray<i32, 2>,
    /// Uniform numbers of the sequences.
    draws: DeviceArray<f32, 1>,
    pub(super) tokens: DeviceArray<i32, 1>,
}
ct::impl_graph_resource!(impl<T: Element> Chosen<T> { logits, largest, columns, draws, tokens });

/// Decode steps of sequences: cache, activations and chosen tokens.
pub struct Decoding<T> {
    pub(super) cache: Cache<T>,
    pub(super) activations: Activations<T>,
    pub(super) chosen: Chosen<T>,
    /// Tokens of the steps, of shape (sequences, positions).
    history: DeviceArray<i32, 2>,
    pub(super) scratch: Scratch,
    choice: Choice,
}
ct::impl_graph_resource!(impl<T: Element> Decoding<T> { cache, activations, chosen, history, scratch });

/// Tokens of sequences, and the activations of their prefill.
pub struct Prompts<T> {
    tokens: DeviceArray<i32, 1>,
    /// The first token of each sequence, and the number of all.
    starts: DeviceArray<i32, 1>,
    pub(super) lengths: Vec<i32>,
    pub(super) activations: Activations<T>,
    /// States of the last tokens, and their sums of squares.
    pub(super) ends: (DeviceArray<T, 2>, DeviceArray<f32, 2>),
}

impl<T: Real> Decoding<T> {
    /// Allocates the arrays of `sequences` sequences of up to `capacity` tokens.
    ///
    /// # Errors
    /// Those of the allocations.
    pub fn new(model: &Llama<T>, sequences: usize, capacity: usize, choice: Choice) -> ct::Result<Decoding<T>> {
        let (device, config) = (model.device(), model.config());
        let cache = Cache::new(device, config, sequences, capacity)?;
        let groups = config.vocabulary.div_ceil(group_of_logits(sequences, model.kind()));
        let chosen = Chosen {
            logits: device.unspecified([sequences, config.vocabulary])?,
            largest: device.unspecified([groups, sequences])?,
            columns: device.unspecified([groups, sequences])?,
            draws: device.zeros([sequences])?,
            tokens: device.zeros([sequences])?,
        };
        let queries = [sequences, config.heads, config.dim];
        // Few sequences: 128 keys of a part, as long as each part has a multiprocessor. A power of
        // two has less to add.
        let blocks = (sequences * config.key_heads).max(1);
        let parts = (capacity / 128).min(device.num_multiprocessors() / blocks);
        let parts = 1 << parts.max(1).ilog2();
        let decode = if parts > 1 { Decode::new(1.0).parts(parts) } else { Decode::new(1.0) };
        let scratch = decode.scratch(device, queries, &cache.pages(0)?)?;
        let history = device.zeros(cache.shape())?;
        let activations = Activations::new(device, config, sequences, model.kind())?;
        Ok(Decoding { cache, activations, chosen, history, scratch, choice })
    }

    /// Sets the number of parts of the keys of a sequence, which tile blocks of attention share.
    ///
    /// # Errors
    /// Those of the allocations.
    pub fn set_parts(&mut self, model: &Llama<T>, parts: usize) -> ct::Result<()> {
        let config = model.config();
        let queries = [self.cache.shape()[0], config.heads, config.dim];
        let pages = self.cache.pages(0)?;
        self.scratch = Decode::new(1.0).parts(parts).scratch(model.device(), queries, &pages)?;
        Ok(())
    }

    /// Returns the cache.
    pub fn cache(&mut self) -> &mut Cache<T> {
        &mut self.cache
    }

    /// Returns the logits of the last pass, of shape (sequences, vocabulary).
    #[must_use]
    pub fn logits(&self) -> &DeviceArray<T, 2> {
        &self.chosen.logits
    }

    /// Returns the chosen tokens: the input of the next step.
    #[must_use]
    pub fn tokens(&self) -> &DeviceArray<i32, 1> {
        &self.chosen.tokens
    }

    /// Sets the input of the next step.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for another number of sequences.
    pub fn set_tokens(&mut self, tokens: &[i32]) -> ct::Result<()> {
        self.chosen.tokens.copy_from(tokens)
    }

    /// Returns the tokens of the steps by position, of shape (sequences, positions).
    #[must_use]
    pub fn history(&self) -> &DeviceArray<i32, 2> {
        &self.history
    }

    /// Records a decode step as a graph of launches. A replay appends a token to each sequence.
    ///
    /// # Errors
    /// Those of [`Llama::step`].
    pub fn graph<'m>(mut self, model: &'m Llama<T>, plan: Plan) -> ct::Result<Graph<'m, (&'m Llama<T>, Decoding<T>)>> {
        let stream = model.device().default_stream();
        // Workspaces grow and kernels are compiled outside of the record. Its tokens are those of
        // the next step.
        let (lengths, tokens) = (self.cache.lengths.to_vec()?, self.chosen.tokens.to_vec()?);
        model.step(&stream, &mut self, &plan)?;
        self.cache.set_lengths(&lengths)?;
        self.set_tokens(&tokens)?;
        Graph::capture((model, self), move |(model, state)| model.step(&stream, state, &plan))
    }
}

impl<T: Real> Prompts<T> {
    /// Copies the tokens of the sequences of `decoding` to the device.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for another number of sequences, for an empty sequence, and for more
    /// tokens than the cache has.
    #[track_caller]
    pub fn new(model: &Llama<T>, decoding: &Decoding<T>, sequences: &[Vec<i32>]) -> ct::Result<Prompts<T>> {
        let (device, [count, capacity]) = (model.device(), decoding.cache.shape());
        let fits = sequences.len() == count && sequences.iter().all(|tokens| (1..=capacity).contains(&tokens.len()));
        if !fits {
            let lengths: Vec<usize> = sequences.iter().map(Vec::len).collect();
            let text = format!("sequences of {lengths:?} tokens: {count} sequences of 1 to {capacity} tokens");
            return Err(ct::Error::Argument(ct::Diagnostic::new(text, Some(ct::Location::caller()))));
        }
        let lengths: Vec<i32> = sequences.iter().map(|tokens| tokens.len() as i32).collect();
        let starts: Vec<i32> = std::iter::once(0)
            .chain(lengths.iter().scan(0, |end, length| {
                *end += length;
                Some(*end)
            }))
            .collect();
        let (tokens, config) = (sequences.concat(), model.config());
        let mut activations = Activations::new(device, config, tokens.len(), model.kind())?;
        let places = || sequences.iter().enumerate().flat_map(|(at, of)| (0..of.len()).map(move |token| (at, token)));
        activations.positions.copy_from(&places().map(|(_, token)| token as i32).collect::<Vec<_>>())?;
        let rows = places().map(|(sequence, token)| decoding.cache.row(sequence, token) as i32);
        activations.rows.copy_from(&rows.collect::<Vec<_>>())?;
        let groups = config.hidden / group(count, model.kind());
        Ok(Prompts {
            tokens: device.array(&tokens, [tokens.len()])?,
            starts: device.array(&starts, [count + 1])?,
            lengths,
            activations,
            ends: (device.unspecified([count, config.hidden])?, device.unspecified([groups, count])?),
        })
    }
}

impl<T: Real> Llama<T> {
    /// Queues the prefill of sequences from their first token on, and the choice of the next
    /// tokens. Its kernels are long: each starts after the preceding one.
    ///
    /// # Errors
    /// Those of the launches.
    pub fn prefill(
        &self,
        stream: &Stream,
        prompts: &mut Prompts<T>,
        decoding: &mut Decoding<T>,
        plan: &Plan,
    ) -> ct::Result<()> {
        decoding.cache.set_lengths(&prompts.lengths)?;
        self.embed_prompts(stream, prompts, plan)?;
        let mut attend = Attend::Sequences(&prompts.lengths);
        for layer in self.layers().iter().enumerate() {
            self.layer(stream, layer, &mut prompts.activations, &mut decoding.cache, &mut attend, (plan, None))?;
        }
        self.pick_ends(stream, prompts, plan)?;
        let Decoding { chosen, choice, activations: Activations { workspace, .. }, .. } = decoding;
        let state = (prompts.ends.0.view(), prompts.ends.1.view());
        // One row of each sequence, as in a step: not the tiles of the plan.
        let of_ends = Plan { only: plan.only, ..Plan::default() };
        self.choose(stream, state, (chosen, *choice), workspace, &of_ends)
    }

    /// Queues the embeddings of prompts.
    pub(super) fn embed_prompts(&self, stream: &Stream, prompts: &mut Prompts<T>, plan: &Plan) -> ct::Result<()> {
        if plan.only.is_some_and(|only| only != Part::Embed) {
            return Ok(());
        }
        let act = &mut prompts.activations;
        let out = (act.states[0].view_mut(), act.squares.view_mut());
        embed(stream, (prompts.tokens.view(), self.words_view()?), out, None)
    }

    /// Queues the states of the last tokens of prompts, times the weight of the last norm.
    pub(super) fn pick_ends(&self, stream: &Stream, prompts: &mut Prompts<T>, plan: &Plan) -> ct::Result<()> {
        if plan.only.is_some_and(|only| only != Part::Embed) {
            return Ok(());
        }
        let Prompts { starts, activations: act, ends, .. } = prompts;
        let x = (act.states[0].view(), self.norm().view());
        pick(stream, x, starts.view(), (ends.0.view_mut(), ends.1.view_mut()))
    }

    /// Queues a decode step: the chosen tokens of the previous pass are appended to their
    /// sequences, and the next ones are chosen. No memory is allocated after the first step.
    ///
    /// # Errors
    /// Those of the launches.
    pub fn step(&self, stream: &Stream, decoding: &mut Decoding<T>, plan: &Plan) -> ct::Result<()> {
        plan.early.run(|| {
            self.embed_step(stream, decoding, plan)?;
            let Decoding { cache, activations: act, chosen, scratch, choice, .. } = decoding;
            let last = self.layers().len().saturating_sub(1);
            let mut attend = Attend::Step(scratch);
            for (index, layer) in self.layers().iter().enumerate() {
                let end = (index == last).then(|| self.norm().view());
                self.layer(stream, (index, layer), act, cache, &mut attend, (plan, end))?;
            }
            let Activations { states: [state, _], squares, workspace, .. } = act;
            self.choose(stream, (state.view(), squares.view()), (chosen, *choice), workspace, plan)
        })
    }

    /// Queues the first kernel of a step: embeddings, positions and lengths.
    pub(super) fn embed_step(&self, stream: &Stream, decoding: &mut Decoding<T>, plan: &Plan) -> ct::Result<()> {
        if plan.only.is_some_and(|only| only != Part::Embed) {
            return Ok(());
        }
        let Decoding { cache, activations: act, chosen, history, choice, .. } = decoding;
        let step = Step {
            lengths: cache.lengths.view_mut(),
            table: cache.table.view(),
            history: history.view_mut(),
            rows: [act.positions.view_mut(), act.rows.view_mut()],
            draws: chosen.draws.view_mut(),
            seed: if let Choice::Sampled(seed) = *choice { seed } else { 0 },
        };
        let out = (act.states[0].view_mut(), act.squares.view_mut());
        embed(stream, (chosen.tokens.view(), self.words_view()?), out, Some(step))
    }

    fn words_view(&self) -> ct::Result<DeviceView<'_, T, 2>> {
        self.words()
            .plain
            .as_ref()
            .map(DeviceArray::view)
            .ok_or_else(|| ct::Error::Argument(ct::Diagnostic::new("embeddings are plain", None)))
    }

    /// Queues the logits of states, and the choice of tokens.
    fn choose(
        &self,
        stream: &Stream,
        state: (DeviceView<T, 2>, DeviceView<f32, 2>),
        (chosen, choice): (&mut Chosen<T>, Choice),
        workspace: &mut Workspace,
        plan: &Plan,
    ) -> ct::Result<()> {
        self.logits(stream, state, (chosen, workspace), plan)?;
        if plan.only.is_some_and(|only| only != Part::Choice) {
            return Ok(());
        }
        let Chosen { logits, largest, columns, draws, tokens } = chosen;
        match choice {
            Choice::Greedy => largest_of_groups(stream, largest.view(), columns.view(), tokens.view_mut()),
            Choice::Sampled(_) => {
                Sampling::new().sample(stream, logits.view(), Draws::Numbers(draws.view()), tokens.view_mut())
            }
        }
    }

    /// Queues the logits of states, and the largest ones of groups.
    pub(super) fn logits(
        &self,
        stream: &Stream,
        (state, squares): (DeviceView<T, 2>, DeviceView<f32, 2>),
        (chosen, workspace): (&mut Chosen<T>, &mut Workspace),
        plan: &Plan,
    ) -> ct::Result<()> {
        if plan.only.is_some_and(|only| only != Part::Product(Product::Head)) {
            return Ok(());
        }
        let Chosen { logits, largest, columns, .. } = chosen;
        let (rows, config) = (state.shape()[0], self.config());
        let by = product(plan).workspace(workspace).normalize_rows(squares, config.hidden, config.epsilon);
        let by = by.largest(largest.view_mut(), columns.view_mut(), group_of_logits(rows, self.kind()));
        multiply(stream, (state, self.operand_of_head()?), logits.view_mut(), by, (plan, Product::Head))
    }
}
