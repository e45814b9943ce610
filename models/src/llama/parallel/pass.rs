//! Passes of all ranks: prefill, decode step, graphs.

use cutlet as ct;
use cutlet::{Device, Graph, Stream};

use super::link::{Link, target};
use super::sum::Phase;
use super::{Method, Parallel, Rank, argument};
use crate::llama::config::Product;
use crate::llama::layers::{Activations, Attend, Part, Plan, multiply, product};
use crate::llama::step::{Choice, Decoding, Prompts};
use crate::llama::{Cache, Llama, Real};

/// Polls of a kernel that waits for another rank: some seconds.
const POLLS: i32 = 1 << 22;

/// Decode steps of sequences on several devices, which choose the token of the largest logit.
pub struct ParallelDecoding<T> {
    parts: Vec<(Decoding<T>, Link<T>)>,
    is_compiled: bool,
}

/// Tokens of sequences, and the activations of their prefill on several devices.
pub struct ParallelPrompts<T> {
    parts: Vec<(Prompts<T>, Link<T>)>,
    is_compiled: bool,
}

/// The steps of a rank as a graph.
type RankGraph<'m, T> = Graph<'m, (&'m Llama<T>, (Decoding<T>, Link<T>))>;

/// Decode steps as a graph for each rank.
pub struct ParallelGraph<'m, T> {
    graphs: Vec<RankGraph<'m, T>>,
    streams: Vec<Stream>,
}

/// The arrays of a rank in the layers of a pass.
struct Member<'a, T> {
    model: &'a Llama<T>,
    stream: &'a Stream,
    act: &'a mut Activations<T>,
    cache: &'a mut Cache<T>,
    attend: Attend<'a>,
    link: &'a mut Link<T>,
}

impl<T: Real> ParallelDecoding<T> {
    /// Allocates the arrays of `sequences` sequences of up to `capacity` tokens.
    ///
    /// # Errors
    /// Those of the allocations; [`ct::Error::Argument`] if sums by peers are chosen for devices
    /// that cannot access each other's memory.
    #[track_caller]
    pub fn new(model: &Parallel<T>, sequences: usize, capacity: usize) -> ct::Result<ParallelDecoding<T>> {
        let shape = [sequences, model.ranks[0].model.config().hidden];
        let links = Link::all(&model.streams(), &model.method, shape, Some(sequences))?;
        let part =
            |(rank, link): (&Rank<T>, _)| Ok((Decoding::new(&rank.model, sequences, capacity, Choice::Greedy)?, link));
        let parts = model.ranks.iter().zip(links).map(part).collect::<ct::Result<_>>()?;
        Ok(ParallelDecoding { parts, is_compiled: false })
    }

    /// Sets the lengths of all sequences, whose tokens are in the cache.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for another number of sequences.
    pub fn set_lengths(&mut self, lengths: &[i32]) -> ct::Result<()> {
        self.parts.iter_mut().try_for_each(|(decoding, _)| decoding.cache().set_lengths(lengths))
    }

    /// Sets the input of the next step.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for another number of sequences.
    pub fn set_tokens(&mut self, tokens: &[i32]) -> ct::Result<()> {
        self.parts.iter_mut().try_for_each(|(decoding, _)| decoding.set_tokens(tokens))
    }
}

impl<T: Real> ParallelPrompts<T> {
    /// Copies the tokens of the sequences of `decoding` to the devices.
    ///
    /// # Errors
    /// As [`Prompts::new`] and [`ParallelDecoding::new`].
    #[track_caller]
    pub fn new(
        model: &Parallel<T>,
        decoding: &ParallelDecoding<T>,
        sequences: &[Vec<i32>],
    ) -> ct::Result<ParallelPrompts<T>> {
        let rows = sequences.iter().map(Vec::len).sum();
        let shape = [rows, model.ranks[0].model.config().hidden];
        let mut prompts = Vec::new();
        for (rank, (decoding, _)) in model.ranks.iter().zip(&decoding.parts) {
            prompts.push(Prompts::new(&rank.model, decoding, sequences)?);
        }
        let links = Link::all(&model.streams(), &model.method, shape, None)?;
        Ok(ParallelPrompts { parts: prompts.into_iter().zip(links).collect(), is_compiled: false })
    }
}

impl<T: Real> Parallel<T> {
    /// Queues the prefill of sequences on all ranks, and the choice of the next tokens. The first
    /// prefill of prompts is queued twice, at first without waits for other ranks, so that no rank
    /// waits for a compilation.
    ///
    /// # Errors
    /// Those of launches and sums.
    pub fn prefill(
        &self,
        prompts: &mut ParallelPrompts<T>,
        decoding: &mut ParallelDecoding<T>,
        plan: &Plan,
    ) -> ct::Result<()> {
        if self.are_concurrent() && !std::mem::replace(&mut prompts.is_compiled, true) {
            self.queue_prefill(prompts, decoding, (plan, 0))?;
            self.synchronize()?;
        }
        self.queue_prefill(prompts, decoding, (plan, POLLS))
    }

    fn queue_prefill(
        &self,
        prompts: &mut ParallelPrompts<T>,
        decoding: &mut ParallelDecoding<T>,
        (plan, polls): (&Plan, i32),
    ) -> ct::Result<()> {
        // Kernels are long: each starts after the preceding one.
        let plan = &Plan { early: crate::llama::Early::After, ..*plan };
        let mut members = Vec::new();
        for ((rank, (prompts, link)), (decoding, _)) in
            self.ranks.iter().zip(&mut prompts.parts).zip(&mut decoding.parts)
        {
            decoding.cache.set_lengths(&prompts.lengths)?;
            rank.model.embed_prompts(&rank.stream, prompts, plan)?;
            link.polls = polls;
            members.push(Member {
                model: &rank.model,
                stream: &rank.stream,
                act: &mut prompts.activations,
                cache: &mut decoding.cache,
                attend: Attend::Sequences(&prompts.lengths),
                link,
            });
        }
        layers(&self.method, &mut members, (plan, false))?;
        // One row of each sequence, as in a step: not the tiles of the plan.
        let of_ends = Plan { only: plan.only, early: plan.early, ..Plan::default() };
        for ((rank, (prompts, _)), (decoding, link)) in
            self.ranks.iter().zip(&mut prompts.parts).zip(&mut decoding.parts)
        {
            rank.model.pick_ends(&rank.stream, prompts, plan)?;
            link.polls = polls;
            let state = (prompts.ends.0.view(), prompts.ends.1.view());
            let Decoding { chosen, activations, .. } = decoding;
            rank.model.logits(&rank.stream, state, (chosen, &mut activations.workspace), &of_ends)?;
        }
        let ranks: Vec<&Rank<T>> = self.ranks.iter().collect();
        choose(&self.method, &ranks, &mut decoding.parts.iter_mut().collect::<Vec<_>>(), plan)
    }

    /// Queues a decode step on all ranks, as [`Llama::step`]. The first step is queued twice, as a
    /// prefill.
    ///
    /// # Errors
    /// Those of launches and sums.
    pub fn step(&self, decoding: &mut ParallelDecoding<T>, plan: &Plan) -> ct::Result<()> {
        if self.are_concurrent() {
            self.compile(decoding, plan)?;
        }
        self.queue_step(decoding, (plan, POLLS))
    }

    /// Returns true if kernels of several ranks run at the same time.
    fn are_concurrent(&self) -> bool {
        self.ranks[0].stream.device() != Device::cpu()
    }

    /// Queues a step without waits for other ranks, so that workspaces grow and kernels are
    /// compiled, and restores lengths and tokens.
    fn compile(&self, decoding: &mut ParallelDecoding<T>, plan: &Plan) -> ct::Result<()> {
        if std::mem::replace(&mut decoding.is_compiled, true) {
            return Ok(());
        }
        let first = &decoding.parts[0].0;
        let (lengths, tokens) = (first.cache.lengths.to_vec()?, first.chosen.tokens.to_vec()?);
        self.queue_step(decoding, (plan, 0))?;
        self.synchronize()?;
        decoding.set_lengths(&lengths)?;
        decoding.set_tokens(&tokens)
    }

    fn queue_step(&self, decoding: &mut ParallelDecoding<T>, (plan, polls): (&Plan, i32)) -> ct::Result<()> {
        decoding.parts.iter_mut().for_each(|(_, link)| link.polls = polls);
        let mut parts: Vec<_> = decoding.parts.iter_mut().collect();
        step(&self.method, &self.ranks.iter().collect::<Vec<_>>(), &mut parts, plan)
    }

    /// Records a decode step as a graph for each rank. A replay appends a token to each sequence.
    ///
    /// # Errors
    /// Those of [`Parallel::step`]; [`ct::Error::Argument`] for sums by NCCL or the host, which are
    /// no work of a graph. The same error for several ranks on the cpu device, where the graph of
    /// one ends before that of the next one begins.
    #[track_caller]
    pub fn graph(&self, mut decoding: ParallelDecoding<T>, plan: Plan) -> ct::Result<ParallelGraph<'_, T>> {
        if self.ranks.len() > 1 && !self.are_concurrent() {
            return Err(argument("graphs of several ranks on the cpu device: use `Parallel::step`".into()));
        }
        let Method::Peers { rows } = self.method else {
            return Err(argument("sums by NCCL or the host in a graph: sums by peers are work of a graph".into()));
        };
        self.compile(&mut decoding, &plan)?;
        let mut graphs = Vec::new();
        for (rank, (part, mut link)) in self.ranks.iter().zip(std::mem::take(&mut decoding.parts)) {
            link.polls = POLLS;
            let record = move |(_, part): &mut (&Llama<T>, (Decoding<T>, Link<T>))| {
                step(&Method::Peers { rows }, &[rank], &mut [part], &plan)
            };
            graphs.push(Graph::capture((&rank.model, (part, link)), record)?);
        }
        Ok(ParallelGraph { graphs, streams: self.streams() })
    }

    /// Returns the chosen tokens, after all work.
    ///
    /// # Errors
    /// [`ct::Error::Driver`] if work failed, [`ct::Error::Execution`] if a rank did not receive the
    /// data of another one.
    pub fn tokens(&self, decoding: &ParallelDecoding<T>) -> ct::Result<Vec<i32>> {
        self.synchronize()?;
        check(decoding.parts.iter().map(|(_, link)| link))?;
        decoding.parts[0].0.tokens().to_vec()
    }

    /// Returns the logits of the last pass, of shape (sequences, vocabulary), in row-major order.
    ///
    /// # Errors
    /// As [`Parallel::tokens`].
    pub fn logits(&self, decoding: &ParallelDecoding<T>) -> ct::Result<Vec<T>> {
        self.tokens(decoding)?;
        logits(decoding.parts.iter().map(|(decoding, _)| decoding))
    }
}

impl<T: Real> ParallelGraph<'_, T> {
    /// Queues a step on all ranks.
    ///
    /// # Errors
    /// Those of [`Graph::replay_on`].
    pub fn replay(&mut self) -> ct::Result<()> {
        self.graphs.iter_mut().zip(&self.streams).try_for_each(|(graph, stream)| graph.replay_on(stream))
    }

    /// Returns the number of launches of a step of a rank.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.graphs[0].len()
    }

    /// Sets the lengths of all sequences, whose tokens are in the cache.
    ///
    /// # Errors
    /// [`ct::Error::Argument`] for another number of sequences; those of [`Graph::update`].
    pub fn set_lengths(&mut self, lengths: &[i32]) -> ct::Result<()> {
        for graph in &mut self.graphs {
            graph.state_mut().1.0.cache().set_lengths(lengths)?;
            graph.update()?;
        }
        Ok(())
    }

    /// Sets the input of the next step.
    ///
    /// # Errors
    /// As [`ParallelGraph::set_lengths`].
    pub fn set_tokens(&mut self, tokens: &[i32]) -> ct::Result<()> {
        for graph in &mut self.graphs {
            graph.state_mut().1.0.set_tokens(tokens)?;
            graph.update()?;
        }
        Ok(())
    }

    /// Waits for all ranks.
    ///
    /// # Errors
    /// As [`Parallel::tokens`].
    pub fn synchronize(&self) -> ct::Result<()> {
        self.streams.iter().try_for_each(Stream::synchronize)?;
        check(self.graphs.iter().map(|graph| &graph.state().1.1))
    }

    /// Returns the chosen tokens of each rank, after all work. They are equal.
    ///
    /// # Errors
    /// As [`Parallel::tokens`].
    pub fn tokens(&self) -> ct::Result<Vec<Vec<i32>>> {
        self.synchronize()?;
        self.graphs.iter().map(|graph| graph.state().1.0.tokens().to_vec()).collect()
    }

    /// Returns the logits of the last step, of shape (sequences, vocabulary), in row-major order.
    ///
    /// # Errors
    /// As [`Parallel::tokens`].
    pub fn logits(&self) -> ct::Result<Vec<T>> {
        self.synchronize()?;
        logits(self.graphs.iter().map(|graph| &graph.state().1.0))
    }
}

impl<T> Drop for ParallelGraph<'_, T> {
    fn drop(&mut self) {
        // A rank may read the memory of another one until the end of its own work.
        self.streams.iter().for_each(|stream| drop(stream.synchronize()));
    }
}

fn check<'a, T: Real>(mut links: impl Iterator<Item = &'a Link<T>>) -> ct::Result<()> {
    match links.try_fold(false, |failed, link| Ok::<_, ct::Error>(failed | link.has_failed()?))? {
        false => Ok(()),
        true => Err(ct::Error::Execution(ct::Diagnostic::new("a rank waited for data of another one in vain", None))),
    }
}

/// Returns the logits of all ranks, row by row.
fn logits<'a, T: Real>(parts: impl Iterator<Item = &'a Decoding<T>>) -> ct::Result<Vec<T>> {
    let parts: Vec<_> =
        parts.map(|part| Ok((part.logits().to_vec()?, part.logits().shape()))).collect::<ct::Result<_>>()?;
    let rows = parts[0].1[0];
    let of_row = |row: usize| {
        parts.iter().flat_map(move |(logits, [_, columns])| logits[row * columns..][..*columns].iter().copied())
    };
    Ok((0..rows).flat_map(of_row).collect())
}

/// Queues a decode step of some ranks: of all, or of one for its graph.
fn step<T: Real>(
    method: &Method,
    ranks: &[&Rank<T>],
    parts: &mut [&mut (Decoding<T>, Link<T>)],
    plan: &Plan,
) -> ct::Result<()> {
    plan.early.run(|| {
        let mut members = Vec::new();
        for (rank, (decoding, link)) in ranks.iter().zip(parts.iter_mut()) {
            rank.model.embed_step(&rank.stream, decoding, plan)?;
            let Decoding { cache, activations: act, scratch, .. } = decoding;
            let (model, stream, attend) = (&rank.model, &rank.stream, Attend::Step(scratch));
            members.push(Member { model, stream, act, cache, attend, link });
        }
        layers(method, &mut members, (plan, true))?;
        for (rank, (decoding, _)) in ranks.iter().zip(parts.iter_mut()) {
            let Decoding { activations: Activations { states: [state, _], squares, workspace, .. }, chosen, .. } =
                decoding;
            rank.model.logits(&rank.stream, (state.view(), squares.view()), (chosen, workspace), plan)?;
        }
        choose(method, ranks, parts, plan)
    })
}

/// Queues the layers of some ranks. `is_step`: the weight of the last norm is applied in the last
/// layer.
fn layers<T: Real>(method: &Method, members: &mut [Member<T>], (plan, is_step): (&Plan, bool)) -> ct::Result<()> {
    let runs = |part: Part| plan.only.is_none_or(|only| only == part);
    let count = members.first().map_or(0, |member| member.model.layers().len());
    for index in 0..count {
        for Member { model, stream, act, cache, attend, link } in members.iter_mut() {
            let layer = &model.layers()[index];
            model.attended(stream, (index, layer), act, cache, attend, plan)?;
            if runs(Part::Product(Product::Out)) {
                let by = product(plan).workspace(&mut act.workspace);
                let x = (act.attended.view(), layer.out.operand());
                multiply(stream, x, link.part(0).view_mut(), by, (plan, Product::Out))?;
            }
        }
        sum(method, members, 0, (plan, false))?;
        for Member { model, stream, act, link, .. } in members.iter_mut() {
            let layer = &model.layers()[index];
            model.gated(stream, layer, act, plan)?;
            if runs(Part::Product(Product::Down)) {
                let by = product(plan).workspace(&mut act.workspace);
                let x = (act.inner.view(), layer.down.operand());
                multiply(stream, x, link.part(1).view_mut(), by, (plan, Product::Down))?;
            }
        }
        sum(method, members, 1, (plan, is_step && index + 1 == count))?;
    }
    Ok(())
}

/// Returns the phases of exchanges: one on GPUs, whose kernels run at the same time.
fn phases(device: Device) -> &'static [Phase] {
    if device == Device::cpu() { &[Phase::Send, Phase::Receive] } else { &[Phase::Both] }
}

/// Queues a sum over ranks and the state after it: 0 after attention, 1 of the second product.
fn sum<T: Real>(
    method: &Method,
    members: &mut [Member<T>],
    which: usize,
    (plan, is_end): (&Plan, bool),
) -> ct::Result<()> {
    if plan.only.is_some_and(|only| only != Part::Sum) {
        return Ok(());
    }
    let Some(first) = members.first() else { return Ok(()) };
    let end = |model| is_end.then(|| Llama::norm(model));
    match method {
        Method::Peers { .. } => {
            for &phase in phases(first.stream.device()) {
                for Member { model, act, link, .. } in members.iter_mut() {
                    link.sum_of_peers(which, target(act, which, end(*model)), (plan, phase))?;
                }
            }
            return Ok(());
        }
        Method::Host => on_host(members.iter_mut().map(|member| member.link.part(which)))?,
        #[cfg(feature = "nccl")]
        Method::Nccl(nccl) => nccl.sum(members.iter_mut().map(|member| member.link.part(which)))?,
    }
    members
        .iter_mut()
        .try_for_each(|Member { model, act, link, .. }| link.add(which, target(act, which, end(*model)), plan))
}

/// Queues the choice of tokens from the logits of all ranks.
fn choose<T: Real>(
    method: &Method,
    ranks: &[&Rank<T>],
    parts: &mut [&mut (Decoding<T>, Link<T>)],
    plan: &Plan,
) -> ct::Result<()> {
    if plan.only.is_some_and(|only| only != Part::Choice) {
        return Ok(());
    }
    let first = |rank: &Rank<T>| rank.model.first_token();
    match method {
        Method::Peers { .. } => {
            for &phase in phases(ranks[0].stream.device()) {
                for (rank, (decoding, link)) in ranks.iter().zip(parts.iter_mut()) {
                    link.choose(&mut decoding.chosen, first(rank), (plan, phase))?;
                }
            }
            return Ok(());
        }
        _ => {
            for (rank, (decoding, link)) in ranks.iter().zip(parts.iter_mut()) {
                link.put_pair(&decoding.chosen, first(rank))?;
            }
        }
    }
    match method {
        #[cfg(feature = "nccl")]
        Method::Nccl(nccl) => nccl.sum(parts.iter_mut().map(|(_, link)| link.pairs()))?,
        _ => on_host(parts.iter_mut().map(|(_, link)| link.pairs()))?,
    }
    parts.iter_mut().try_for_each(|(decoding, link)| link.pick_pair(&mut decoding.chosen))
}

/// Adds arrays of all ranks, in f64 and in the order of ranks.
fn on_host<'a, T: Real, const R: usize>(parts: impl Iterator<Item = &'a mut ct::DeviceArray<T, R>>) -> ct::Result<()> {
    let mut parts: Vec<_> = parts.collect();
    let Some(first) = parts.first() else { return Ok(()) };
    let mut sums = vec![0.0; first.len()];
    for part in &parts {
        sums.iter_mut().zip(part.to_vec()?).for_each(|(sum, x)| *sum += x.to_f64());
    }
    let sums: Vec<T> = sums.into_iter().map(T::from_f64).collect();
    parts.iter_mut().try_for_each(|part| part.copy_from(&sums))
}
