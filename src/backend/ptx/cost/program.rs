//! The programs of a schedule as acts that take time.

use std::collections::HashMap;

use super::demand::{Demand, Unit};
use super::prices::Prices;
use super::trips::{Launched, trips};
use super::weights::Weights;
use crate::backend::ptx::plan::GROUP_WARPS;
use crate::backend::ptx::schedule::{
    For, KernelInfo, MmaGroup, OrderPoint, Schedule, SeqId, StageCount, Step, StripRole, SubStep, WarpRole,
};
use crate::ir::{BlockId, OpId, Opcode, Value};

/// Iterations of a loop that is entered with a number that nothing tells: of innermost loops, and of those around others.
pub const ASSUMED: [f64; 2] = [32.0, 8.0];
/// Most iterations that are gone through; and of those that are dealt to teams, each of which waits for the other one at first.
const FOLLOWED: [u32; 2] = [64, 4];
const DEALT: u32 = 6;

/// One thing that warps do which go through a program together.
pub struct Act {
    pub what: What,
    /// For people.
    pub label: String,
    /// Values that have to be there.
    pub reads: Vec<Value>,
    /// What comes after it waits for all of it.
    pub folds: bool,
    /// So many steps.
    pub count: u32,
}

pub enum What {
    /// Instructions, what goes on behind them, then so many barriers; and these values arrive later, or are waited for here.
    Work {
        demand: Demand,
        behind: Demand,
        stores: bool,
        meets: u32,
        arrives: Vec<Value>,
        waits: bool,
    },
    /// A product that runs on its own, if it is not waited for.
    Product {
        runs: Demand,
        least: f64,
        waits: bool,
        gives: Vec<u32>,
    },
    Fill(u32),
    Take(u32),
    Await(u32),
    /// All products but so many.
    Land {
        younger: usize,
    },
    Give(Vec<u32>),
    Turn(OrderPoint),
    Pass(OrderPoint),
    /// Waits until the group before has ended its turn.
    BeginTurn,
    /// The next group has its turn; `multiplied`: when tensor cores have done the products that were issued last.
    EndTurn {
        multiplied: bool,
    },
    /// Bytes leave shared memory on their own.
    Send {
        near: Demand,
        far: Demand,
    },
    Round(usize),
}

/// A loop.
pub struct Round {
    pub op: OpId,
    pub acts: usize,
    /// What comes when it has been left.
    pub leave: Option<usize>,
    /// Iterations, and whether that is known.
    pub trips: f64,
    pub known: bool,
    /// So many are gone through.
    pub followed: u32,
    /// Does it contain others?
    pub outer: bool,
    /// What each iteration takes of each ring, if they are dealt to teams.
    pub deal: Option<Vec<StageCount>>,
    pub ahead: Option<AheadPlan>,
    /// Does it contain products?
    pub multiplies: bool,
}

/// Copies of a loop that run ahead of it.
#[derive(Clone, Copy)]
pub struct AheadPlan {
    pub stages: usize,
    /// What the copies of an iteration ask of threads, and of others.
    pub issue: Demand,
    pub bytes: f64,
    /// Threads copy for each other.
    pub meets: bool,
    pub operands: bool,
}

/// All programs.
pub struct Programs {
    pub weights: &'static Weights,
    /// Lists of acts; bodies of loops among them.
    pub lists: Vec<Vec<Act>>,
    pub rounds: Vec<Round>,
    pub agents: Vec<AgentPlan>,
    pub rings: Vec<RingPrice>,
    pub channels: Vec<ChannelPrice>,
}

/// An agent: so many teams, each of so many groups of warps that go through its program on their own.
pub struct AgentPlan {
    pub acts: WarpRole,
    pub list: usize,
    pub teams: u32,
    pub groups: u32,
    pub warps: u32,
    /// Groups or bands that take turns: each is so many of the groups.
    pub in_turn: u32,
}

#[derive(Clone, Copy)]
pub struct RingPrice {
    pub stages: usize,
    pub paired: bool,
}

#[derive(Clone, Copy)]
pub struct ChannelPrice {
    pub ring: usize,
    /// Bytes that arrive, and those of them that this block fetches.
    pub bytes: f64,
    pub fetched: f64,
    pub boxes: f64,
}

impl Programs {
    /// Of a schedule.
    pub fn of(
        context: &KernelInfo<'_>,
        weights: &'static Weights,
        body: BlockId,
        schedule: &Schedule,
        launched: Launched<'_>,
    ) -> Programs {
        let mut programs = Programs {
            weights,
            lists: Vec::new(),
            rounds: Vec::new(),
            agents: Vec::new(),
            rings: Vec::new(),
            channels: Vec::new(),
        };
        let known = trips(context.module, body, launched);
        if let Some(roles) = schedule.warp_spec.as_deref() {
            programs.rings = roles
                .pipelines
                .iter()
                .map(|ring| RingPrice { stages: ring.num_stages as usize, paired: ring.clustered })
                .collect();
            for channel in &roles.channels {
                let share = |load: OpId| {
                    if roles.multicast.as_ref().is_some_and(|p| p.can_multicast(load)) { 0.5 } else { 1.0 }
                };
                programs.channels.push(ChannelPrice {
                    ring: channel.pipeline,
                    bytes: f64::from(channel.bytes()),
                    fetched: channel.loads.iter().map(|load| f64::from(load.bytes) * share(load.load)).sum(),
                    boxes: channel.loads.iter().map(|load| load.boxes.len() as f64 * share(load.load)).sum(),
                });
            }
        }
        let multiplies = !context.inference.products.is_empty();
        for agent in &schedule.partitions {
            let warps = agent.warps.end - agent.warps.start;
            let teams = if agent.role == WarpRole::Consumer {
                schedule.warp_spec.as_ref().map_or(1, |roles| roles.pingpong_groups())
            } else {
                1
            };
            // Four warps are those that one instruction multiplies for, or one for each scheduler.
            let groups = match agent.role {
                WarpRole::Producer => 1,
                _ if multiplies => (warps / teams / GROUP_WARPS).max(1),
                _ => 1,
            };
            let each = if agent.role == WarpRole::Producer { 1 } else { warps / teams / groups };
            // Each band has tiles of its own.
            let bands = if agent.role == WarpRole::Consumer { context.data_partitions } else { 1 };
            let prices = Prices { context, weights, warps: f64::from(each), groups: f64::from(groups / bands) };
            let mut writer = Writer {
                prices,
                schedule,
                known: &known,
                loads: agent.role == WarpRole::Producer,
                exponentials: None,
                programs: &mut programs,
            };
            let list = writer.body(agent.body);
            let in_turn = if bands > 1 { bands } else { groups };
            programs.agents.push(AgentPlan { acts: agent.role, list, teams, groups, warps: each, in_turn });
        }
        programs
    }
}

struct Writer<'a, 'm> {
    prices: Prices<'a, 'm>,
    schedule: &'a Schedule,
    known: &'a HashMap<OpId, f64>,
    /// One lane, which does one thing after another.
    loads: bool,
    /// Exponentials whose turn has begun, and ends when they have been computed.
    exponentials: Option<Value>,
    programs: &'a mut Programs,
}

/// Instructions, and nothing else.
fn work(demand: Demand) -> What {
    What::Work { demand, behind: Demand::default(), stores: false, meets: 0, arrives: Vec::new(), waits: false }
}

/// Work that stands side by side is mixed by the assembler, so that its units are busy at the same time; but who folds a tile has to have
/// all of it before its result is used.
fn mixed(acts: Vec<Act>) -> Vec<Act> {
    let mut out: Vec<Act> = Vec::with_capacity(acts.len());
    let mut most = 0.0;
    let mut open = false;
    for mut act in acts {
        let mixes = act.mixes();
        if let (true, Some(last), What::Work { demand, .. }) = (open && mixes, out.last_mut(), &act.what)
            && let What::Work { demand: all, .. } = &mut last.what
        {
            let alone = demand.alone();
            *all += *demand;
            last.reads.append(&mut act.reads);
            if alone > most {
                most = alone;
                last.label = act.label;
            }
            last.count += 1;
            open = !act.folds;
            continue;
        }
        open = mixes && !act.folds;
        most = match &act.what {
            What::Work { demand, .. } => demand.alone(),
            _ => 0.0,
        };
        out.push(act);
    }
    out
}

impl Act {
    pub fn new(what: What, label: String) -> Act {
        Act { what, label, reads: Vec::new(), folds: false, count: 1 }
    }

    /// Only instructions, without a barrier, and nothing arrives later?
    fn mixes(&self) -> bool {
        matches!(&self.what, What::Work { meets: 0, arrives, waits: false, behind, .. } if arrives.is_empty() && behind.alone() == 0.0)
    }
}

impl Writer<'_, '_> {
    fn body(&mut self, body: SeqId) -> usize {
        let mut acts = Vec::new();
        self.steps(body, &mut acts);
        if self.has_turns(body) {
            // The planner gives turns only to bodies in which threads do not meet; prices assume barriers for conversions.
            for act in &mut acts {
                if let What::Work { meets, .. } = &mut act.what {
                    *meets = 0;
                }
            }
        }
        let acts = if self.loads { acts } else { mixed(acts) };
        self.programs.lists.push(acts);
        self.programs.lists.len() - 1
    }

    fn steps(&mut self, body: SeqId, acts: &mut Vec<Act>) {
        let schedule = self.schedule;
        for step in schedule.steps(body) {
            self.step(step, acts);
            let makes = |value| step.ops().iter().any(|&id| self.prices.context.module.op(id).results.contains(&value));
            if self.exponentials.is_some_and(makes) {
                self.pass_work(acts);
            }
        }
    }

    /// Returns true if groups take turns in a body, and threads do not meet there.
    fn has_turns(&self, body: SeqId) -> bool {
        let steps = self.schedule.steps(body);
        let is_turn = |step: &Step| match step {
            Step::Mma(plan) => plan.order.is_some(),
            step => matches!(step, Step::ExpOrderWait { .. }),
        };
        steps.iter().any(is_turn) && !steps.iter().any(|step| matches!(step, Step::Sub(SubStep::Barrier { .. })))
    }

    fn push(&self, acts: &mut Vec<Act>, step: &Step, label: String, what: What) {
        let reads = match step {
            Step::Exec(_)
            | Step::TmaStore(_)
            | Step::PrivatizedAtomic(_)
            | Step::StripMine(_)
            | Step::Mma(_)
            | Step::For(_) => self.prices.context.values_read_by(step),
            _ => Vec::new(),
        };
        let folds = step.ops().iter().any(|&id| {
            let code = self.prices.context.module.op(id).code;
            matches!(code, Opcode::Reduce | Opcode::Scan)
        });
        acts.push(Act { reads, folds, ..Act::new(what, label) });
    }

    fn step(&mut self, step: &Step, acts: &mut Vec<Act>) {
        let context = self.prices.context;
        let name =
            |id: OpId| format!("{} {}", context.module.op(id).code.spec().name.trim_end_matches("_tko"), id.index());
        let all = |channels: &[u32]| channels.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        match step {
            Step::Sub(SubStep::MmaWaitAll) => self.push(acts, step, "land".to_owned(), What::Land { younger: 0 }),
            // What else a step does within is in the price of its op.
            Step::Deferred(_) | Step::End(_) | Step::Sub(_) => {}
            &Step::Exec(id) | &Step::PrivatizedAtomic(id) => {
                let price = self.prices.op(id);
                let arrives = if price.arrives { context.module.op(id).results.clone() } else { Vec::new() };
                let what = What::Work {
                    demand: price.demand,
                    behind: price.behind,
                    stores: !price.arrives,
                    meets: price.meets,
                    arrives,
                    waits: false,
                };
                if price.demand.alone() > 0.0 || price.meets > 0 {
                    self.push(acts, step, name(id), what);
                }
            }
            &Step::LocalLoad { op: id, .. } => {
                let tile = context.module.op(id).results[0];
                let bytes = crate::backend::ptx::plan::extent(context.module, tile).1 as f64 / self.prices.groups;
                let demand = Demand::of(Unit::Shared, bytes / self.prices.weights.shared);
                self.push(acts, step, name(id), work(demand));
            }
            Step::StripMine(strip) => {
                let (mut demand, mut behind) = (Demand::default(), Demand::default());
                let mut meets = 0;
                let mut arrives = false;
                for &(id, part) in &strip.ops {
                    if part == StripRole::Body {
                        let price = self.prices.op(id);
                        demand += price.demand;
                        behind += price.behind;
                        meets = meets.max(price.meets);
                        arrives |= price.arrives;
                    }
                }
                let first = strip.ops().next().map_or_else(String::new, name);
                let what = What::Work { demand, behind, stores: !arrives, meets, arrives: Vec::new(), waits: arrives };
                self.push(acts, step, format!("strip {first}"), what);
            }
            Step::TmaStore(send) => {
                let id = send.op;
                let (price, bytes) = self.prices.send(id);
                let (demand, behind, meets) = (price.demand, price.behind, price.meets);
                let what = What::Work { demand, behind, stores: true, meets, arrives: Vec::new(), waits: false };
                self.push(acts, step, name(id), what);
                let weights = self.prices.weights;
                let near = Demand::of(Unit::L2, bytes / weights.l2);
                let far = Demand::of(Unit::Memory, bytes / weights.memory);
                acts.push(Act::new(What::Send { near, far }, name(id)));
            }
            Step::Mma(plan) => self.multiply(step, plan, acts),
            &Step::Produce(channel) => self.push(acts, step, format!("fill {channel}"), What::Fill(channel)),
            &Step::Advance(channel) => self.push(acts, step, format!("take {channel}"), What::Take(channel)),
            Step::ConsumerWait(wait) => {
                self.push(acts, step, format!("await {}", wait.channel), What::Await(wait.channel))
            }
            Step::MmaWait(land) => {
                let label = format!("land {}", land.mma.index());
                self.push(acts, step, label, What::Land { younger: land.pending });
            }
            Step::ConsumerTryWait(_) => {}
            Step::ExpOrderWait { exponentials, .. } => {
                self.push(acts, step, "turn work".to_owned(), What::BeginTurn);
                self.exponentials = Some(*exponentials);
            }
            Step::ExpOrderArrive(_) => self.pass_work(acts),
            Step::ConsumerRelease(channels) => {
                self.push(acts, step, format!("give {}", all(channels)), What::Give(channels.clone()));
            }
            &Step::OrderWait(turn) => self.push(acts, step, format!("turn {turn}"), What::Turn(turn)),
            &Step::OrderArrive(turn) => self.push(acts, step, format!("pass {turn}"), What::Pass(turn)),
            Step::For(plan) => self.for_loop(step, plan, acts),
            Step::Loop(plan) => {
                let list = self.body(plan.body);
                self.round(plan.op, list, None, None, acts);
            }
            &Step::If { op, ref arms, .. } => {
                // What loops and multiplies is what counts; and of work what is rare stands in the longer arm.
                let regions = &context.module.op(op).regions;
                let weight = |&arm: &usize| regions.get(arm).map(|&region| self.weight(region));
                if let Some(&arm) = (0..arms.len()).min_by_key(weight).and_then(|arm| arms.get(arm)) {
                    self.steps(arm, acts);
                }
            }
        }
    }

    /// The next group has its turn to work: when the exponentials have been computed, wherever the step is.
    fn pass_work(&mut self, acts: &mut Vec<Act>) {
        if self.exponentials.take().is_some() {
            acts.push(Act::new(What::EndTurn { multiplied: false }, "pass work".to_owned()));
        }
    }

    /// Of a branch: whether it does without loops and products, and its ops.
    fn weight(&self, region: BlockId) -> (bool, usize) {
        let module = self.prices.context.module;
        let (mut plain, mut count) = (true, 0);
        module.walk(region, &mut |id| {
            plain &= !matches!(module.op(id).code, Opcode::MmaF | Opcode::MmaI | Opcode::For | Opcode::Loop);
            count += 1;
        });
        (plain, count)
    }

    fn multiply(&mut self, step: &Step, plan: &MmaGroup, acts: &mut Vec<Act>) {
        let context = self.prices.context;
        let Some(last) = plan.last() else { return };
        let roles = self.schedule.warp_spec.as_deref();
        let fetched = |value: Value| {
            let load = context.source_load(value);
            load.is_some_and(|load| roles.is_some_and(|roles| roles.operand_channel.contains_key(&load)))
        };
        let (mut before, mut runs, mut after, mut meets) = (Demand::default(), Demand::default(), Demand::default(), 0);
        let mut least = 0.0;
        for &id in &plan.ops {
            let price = self.prices.product(id, &fetched);
            before += price.before.demand;
            meets = meets.max(price.before.meets);
            runs += price.runs;
            least += price.least;
            after += price.after;
        }
        let name = format!("multiply {}", last.index());
        if before.alone() > 0.0 || meets > 0 {
            self.push(
                acts,
                step,
                name.clone(),
                What::Work {
                    demand: before,
                    behind: Demand::default(),
                    stores: false,
                    meets,
                    arrives: Vec::new(),
                    waits: false,
                },
            );
        }
        let asynchronous = context.inference.runs_alone(last);
        if !asynchronous {
            self.push(acts, step, name, work(runs));
            if !plan.releases.is_empty() {
                acts.push(Act::new(What::Give(plan.releases.clone()), "give".to_owned()));
            }
            return;
        }
        let waits = !context.is_async(&plan.ops);
        if plan.order.acquire {
            acts.push(Act::new(What::BeginTurn, "turn products".to_owned()));
        }
        self.push(acts, step, name.clone(), What::Product { runs, least, waits, gives: plan.releases.clone() });
        if plan.order.release {
            acts.push(Act::new(What::EndTurn { multiplied: true }, "pass products".to_owned()));
        }
        if after.alone() > 0.0 {
            let what = work(after);
            acts.push(Act::new(what, format!("sums of {}", last.index())));
        }
    }

    fn for_loop(&mut self, step: &Step, plan: &For, acts: &mut Vec<Act>) {
        if !plan.hoisted.is_empty() {
            // Bounds and what comes in another layout.
            let demand = Demand::time(self.prices.weights.step);
            self.push(acts, step, "hoist".to_owned(), work(demand));
        } else {
            self.push(acts, step, "for".to_owned(), work(Demand::time(0.0)));
        }
        let list = self.body(plan.body);
        if plan.cp_async.as_ref().is_some_and(|ahead| ahead.async_mma) {
            let what = What::Land { younger: 0 };
            self.programs.lists[list].insert(0, Act::new(what, "land all".to_owned()));
        }
        let leave = plan.epilogue.map(|leave| self.body(leave));
        let ahead = plan.cp_async.as_ref().map(|ahead| AheadPlan {
            stages: ahead.stages,
            issue: self.prices.copies(ahead.stage_bytes as f64),
            bytes: ahead.stage_bytes as f64 / self.prices.groups,
            meets: ahead.barrier_at_head,
            operands: ahead.barrier_at_head,
        });
        let deal = plan.pingpong.as_ref().map(|deal| deal.stages_per_iteration.clone());
        self.round(plan.op, list, leave, ahead, acts);
        if let Some(round) = self.programs.rounds.last_mut() {
            round.deal = deal;
        }
    }

    fn round(&mut self, op: OpId, list: usize, leave: Option<usize>, ahead: Option<AheadPlan>, acts: &mut Vec<Act>) {
        let (mut multiplies, mut outer) = (false, false);
        let module = self.prices.context.module;
        for &region in &module.op(op).regions {
            module.walk(region, &mut |id| {
                multiplies |= matches!(module.op(id).code, Opcode::MmaF | Opcode::MmaI);
                outer |= matches!(module.op(id).code, Opcode::For | Opcode::Loop);
            });
        }
        let known = self.known.get(&op).copied();
        let trips = known.unwrap_or(ASSUMED[usize::from(outer)]);
        let deal = self.schedule.warp_spec.as_ref().and_then(|roles| roles.pingpong.as_ref());
        let is_dealt = deal.is_some_and(|deal| deal.loop_op == op);
        let most = if is_dealt { DEALT } else { FOLLOWED[usize::from(outer)] };
        let followed = (trips.ceil() as u32).min(most);
        self.programs.rounds.push(Round {
            op,
            acts: list,
            leave,
            trips,
            known: known.is_some(),
            followed,
            outer,
            deal: None,
            ahead,
            multiplies,
        });
        let index = self.programs.rounds.len() - 1;
        let label = format!("for {}", op.index());
        acts.push(Act::new(What::Round(index), label));
    }
}
