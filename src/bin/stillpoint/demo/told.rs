//! Tells when a file's upload begins and ends, so that a kill can fall in between.

use stillpoint::storage::{Call, Intercept, Operation};

use super::message::{Message, Mouth};

/// Whoever tells, between the store and the participant.
#[derive(Debug)]
pub struct Told(pub Mouth);

/// The name of a state file or pack, as the participant calls it.
fn shared(name: &str) -> Option<String> {
    let (_, name) = name.split_once("/shared/")?;
    Some(format!("shared/{name}"))
}

impl Intercept for Told {
    fn intercept<'a, T: Send + 'a>(
        &'a self,
        operation: Operation,
        name: &'a str,
        call: Call<'a, T>,
    ) -> Call<'a, T> {
        let (Operation::Put { .. }, Some(file)) = (operation, shared(name)) else {
            return call;
        };
        Box::pin(async move {
            self.0.say(&Message::UploadBegun { file: file.clone() });
            let answer = call.await;
            self.0.say(&Message::UploadEnded { file });
            answer
        })
    }
}
