//! A directory: what is written is not durable, what is durable may not be seen.
use super::*;
use crate::choice::Choices;
use stillpoint::protocol::id::ObjectName;
/// The model.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct DirectoryStore {
    inner: object::ObjectStore,
}
impl DirectoryStore {
    /// step
    pub fn step(
        &mut self,
        request: &Request,
        _progress: &mut Progress,
        context: &mut StepContext<'_>,
    ) -> Option<Response> {
        Some(self.inner.carry_out(request, context))
    }
    /// durable
    pub fn durable(&self) -> Vec<(ObjectName, Body)> {
        self.inner.all()
    }
    /// leftovers
    pub fn leftovers(&self) -> Vec<String> {
        Vec::new()
    }
    /// power cut
    pub fn cut_power(&mut self, _choices: &mut Choices, _effects: &mut Vec<Effect>) {}
}
