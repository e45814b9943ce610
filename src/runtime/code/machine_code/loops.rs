//! Instructions inside of loops: strongly connected components of the flow of control (Tarjan,
//! 1972), without recursion.
//!
//! Blocks that wait are after the end of a kernel and jump back to its middle. They are no loops,
//! so that the direction of a branch does not decide.

use super::instruction::{BYTES, Flow, Instruction};
use crate::util::collect::CollectVec as _;

/// Returns for each instruction whether it is inside of a loop.
pub fn in_loops(code: &[Instruction], has_wide_branch: bool) -> Vec<bool> {
    let flows: Vec<Flow> = code.iter().map(|instruction| instruction.flow(has_wide_branch)).collect_vec();
    let target = |at: usize, distance: i64| -> Option<usize> {
        let place = (at as i64 + 1).checked_mul(BYTES as i64)?.checked_add(distance)?;
        usize::try_from(place).ok().map(|place| place / BYTES).filter(|&index| index < code.len())
    };
    let mut reconverges = vec![false; code.len() + 1];
    for (at, &flow) in flows.iter().enumerate() {
        if let Flow::Diverge { distance } = flow
            && let Some(index) = target(at, distance)
        {
            reconverges[index] = true;
        }
    }
    let next = |at: usize| -> [Option<usize>; 2] {
        let following = Some(at + 1).filter(|&index| index < code.len());
        match flows[at] {
            Flow::Next => [following, None],
            Flow::Branch { distance, is_always } => [following.filter(|_| !is_always), target(at, distance)],
            Flow::Diverge { distance } => [following, target(at, distance)],
            Flow::Reconverge => [following.filter(|&index| reconverges[index]), None],
            Flow::End => [None; 2],
        }
    };
    components(code.len(), &next)
}

/// Returns for each node of a graph whether it is on a cycle.
fn components(count: usize, next: &dyn Fn(usize) -> [Option<usize>; 2]) -> Vec<bool> {
    const UNSEEN: u32 = u32::MAX;
    let (mut order, mut low) = (vec![UNSEEN; count], vec![0u32; count]);
    let (mut is_open, mut on_cycle) = (vec![false; count], vec![false; count]);
    let (mut open, mut path, mut number) = (Vec::new(), Vec::new(), 0u32);
    for root in 0..count {
        if order[root] != UNSEEN {
            continue;
        }
        path.push((root, 0usize));
        while let Some((node, edge)) = path.pop() {
            if edge == 0 {
                (order[node], low[node]) = (number, number);
                number += 1;
                is_open[node] = true;
                open.push(node);
            }
            let Some(&to) = next(node).get(edge) else {
                if low[node] == order[node] {
                    let start = open.iter().rposition(|&other| other == node).expect("an open node");
                    let has_edge = next(node).contains(&Some(node));
                    let is_cycle = open.len() - start > 1 || has_edge;
                    for other in open.drain(start..) {
                        (is_open[other], on_cycle[other]) = (false, is_cycle);
                    }
                }
                if let Some(&(parent, _)) = path.last() {
                    low[parent] = low[parent].min(low[node]);
                }
                continue;
            };
            path.push((node, edge + 1));
            match to {
                Some(to) if order[to] == UNSEEN => path.push((to, 0)),
                Some(to) if is_open[to] => low[node] = low[node].min(order[to]),
                _ => {}
            }
        }
    }
    on_cycle
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_on_cycles_are_found() {
        // 0 → 1 ⇄ 2 → 3 → 3, 4 → 1: a block after the end that jumps back to the cycle.
        let edges =
            [[Some(1), None], [Some(2), Some(4)], [Some(1), Some(3)], [Some(3), Some(5)], [Some(1), None], [None; 2]];
        assert_eq!(components(6, &|node| edges[node]), [false, true, true, true, true, false]);
        // The same without the edge back.
        let edges = [[Some(1), None], [Some(2), Some(4)], [Some(3), None], [None; 2], [Some(2), None]];
        assert_eq!(components(5, &|node| edges[node]), [false; 5]);
        let long = components(100_000, &|node| [Some((node + 1) % 100_000), None]);
        assert!(long.iter().all(|&is_in| is_in));
    }
}
