//! Interpreter for the pickle programs of torch checkpoints: a closed list of opcodes and a closed list of classes.
//!
//! Nothing is ever imported, called or constructed. A program builds plain values; where it asks for a class, the class is
//! looked up in [`classes`], and an unknown class stops the reading with an error that names it. Strings are borrowed from
//! the program, and everything it creates is drawn from one budget, so that a small program cannot fill the memory by
//! repetition. Programs can build cyclic and endlessly shared values; every traversal must therefore be bounded.

mod array;
mod classes;
mod code;
mod heap;
mod rebuild;

pub(super) use classes::{Class, Element};
pub(super) use heap::{Heap, Inline, Item, Rebuilt, Span, StorageId};

use classes::ArrayPart;
use code::{Code, Width};
use heap::index;

use super::printable;
use probe_files::limits::MAX_PICKLE_VALUES;

/// Reason a program was rejected, and its position.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("data.pkl, byte {at}: {message}; nothing in this file was executed")]
pub(super) struct PickleError {
    /// Offset of the opcode in the program.
    pub(super) at: usize,
    /// The problem.
    pub(super) message: String,
}

/// Result of a program.
#[derive(Debug)]
pub(super) struct Program<'a> {
    pub(super) root: Item<'a>,
    pub(super) heap: Heap<'a>,
    /// Number of values the program created.
    pub(super) values: usize,
}

/// Most values a program may create per byte. Torch's programs stay below one; this bounds what a small one can request by
/// copying a list, or by leaving gaps in its memo numbers.
const VALUES_PER_BYTE: usize = 16;

/// Interprets a whole program.
pub(super) fn interpret(bytes: &[u8]) -> Result<Program<'_>, PickleError> {
    let limit = bytes.len().saturating_mul(VALUES_PER_BYTE).saturating_add(1000).min(MAX_PICKLE_VALUES);
    let mut machine = Machine {
        code: Code::new(bytes),
        stack: Vec::with_capacity(16),
        marks: Vec::with_capacity(8),
        memo: Vec::with_capacity(16),
        heap: Heap::default(),
        budget: limit,
        limit,
    };
    loop {
        let at = machine.code.position();
        let step = machine.step().map_err(|message| PickleError { at, message })?;
        if let Some(root) = step {
            let values = limit - machine.budget;
            return Ok(Program { root, heap: machine.heap, values });
        }
    }
}

struct Machine<'a> {
    code: Code<'a>,
    stack: Vec<Item<'a>>,
    /// Stack heights at the open marks.
    marks: Vec<usize>,
    memo: Vec<Option<Item<'a>>>,
    heap: Heap<'a>,
    /// Values that may still be created.
    budget: usize,
    /// Values that may be created in total.
    limit: usize,
}

/// Values that an opcode takes off the stack.
#[derive(Clone, Copy)]
enum Taken {
    /// This many from its top.
    Top(usize),
    /// All above the last mark.
    AboveMark,
}

impl<'a> Machine<'a> {
    /// Runs one opcode; returns the program's result if it was the last.
    // One table of all opcodes that torch writes; its length is theirs.
    fn step(&mut self) -> Result<Option<Item<'a>>, String> {
        let opcode = self.code.byte()?;
        match opcode {
            // PROTO
            0x80 => self.protocol()?,
            // FRAME: a hint for readers of streams
            0x95 => drop(self.code.take(8)?),
            b'.' => return self.stop().map(Some),
            b'(' => self.mark()?,
            b'N' => self.push(Item::None)?,
            0x88 => self.push(Item::Bool(true))?,
            0x89 => self.push(Item::Bool(false))?,
            // BININT1, BININT2, BININT
            b'K' | b'M' | b'J' => self.integer(opcode)?,
            // LONG1, LONG4
            0x8a => self.long(Width::One)?,
            0x8b => self.long(Width::Four)?,
            b'G' => self.float()?,
            // SHORT_BINUNICODE, BINUNICODE, BINUNICODE8
            0x8c => self.text(Width::One)?,
            b'X' => self.text(Width::Four)?,
            0x8d => self.text(Width::Eight)?,
            // SHORT_BINBYTES and SHORT_BINSTRING, BINBYTES and BINSTRING, BINBYTES8 and BYTEARRAY8
            b'C' | b'U' => self.bytes(Width::One)?,
            b'B' | b'T' => self.bytes(Width::Four)?,
            0x8e | 0x96 => self.bytes(Width::Eight)?,
            b')' => self.push(Item::Tuple(Span::default()))?,
            0x85..=0x87 => self.tuple(Taken::Top(usize::from(opcode - 0x84)))?,
            b't' => self.tuple(Taken::AboveMark)?,
            b']' => self.empty_list()?,
            b'a' => self.append(Taken::Top(1))?,
            b'e' => self.append(Taken::AboveMark)?,
            b'}' => self.empty_dict()?,
            b's' => self.set_items(Taken::Top(2))?,
            b'u' => self.set_items(Taken::AboveMark)?,
            // EMPTY_SET, ADDITEMS, FROZENSET: sets are kept as one opaque value
            0x8f => self.push(Item::Opaque)?,
            0x90 => self.discard_above_mark()?,
            0x91 => {
                self.discard_above_mark()?;
                self.push(Item::Opaque)?;
            }
            b'c' => self.global()?,
            0x93 => self.stack_global()?,
            // BINPUT, LONG_BINPUT, MEMOIZE, BINGET, LONG_BINGET
            b'q' => self.put(Width::One)?,
            b'r' => self.put(Width::Four)?,
            0x94 => self.remember(self.memo.len())?,
            b'h' => self.get(Width::One)?,
            b'j' => self.get(Width::Four)?,
            b'Q' => self.persistent_id()?,
            // REDUCE, NEWOBJ
            b'R' | 0x81 => self.call()?,
            b'b' => self.build()?,
            other => return Err(format!("opcode 0x{other:02x} is not used by torch checkpoints")),
        }
        Ok(None)
    }

    fn protocol(&mut self) -> Result<(), String> {
        let version = self.code.byte()?;
        if !(2..=5).contains(&version) {
            return Err(format!("pickle protocol {version} is not supported, only 2 to 5"));
        }
        Ok(())
    }

    fn draw(&mut self, count: usize) -> Result<(), String> {
        self.budget = self
            .budget
            .checked_sub(count)
            .ok_or_else(|| format!("the program makes more values than the limit of {}", self.limit))?;
        Ok(())
    }

    fn push(&mut self, item: Item<'a>) -> Result<(), String> {
        self.draw(1)?;
        self.stack.push(item);
        Ok(())
    }

    /// Returns the lowest stack position that the current opcodes may touch.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn pop(&mut self) -> Result<Item<'a>, String> {
        if self.stack.len() <= self.floor() {
            return Err("the program takes a value from an empty stack".into());
        }
        self.stack.pop().ok_or_else(|| "the program takes a value from an empty stack".into())
    }

    fn top(&self) -> Result<Item<'a>, String> {
        let top = self.stack.get(self.floor()..).and_then(<[_]>::last);
        top.copied().ok_or_else(|| "the program looks at an empty stack".into())
    }

    fn mark(&mut self) -> Result<(), String> {
        self.draw(1)?;
        self.marks.push(self.stack.len());
        Ok(())
    }

    /// Returns the number of values an opcode takes; closes the last mark if they lie above it.
    fn count(&mut self, taken: Taken) -> Result<usize, String> {
        match taken {
            Taken::Top(count) => Ok(count),
            Taken::AboveMark => {
                let mark = self.marks.pop().ok_or("the program closes a mark that was never set")?;
                Ok(self.stack.len().saturating_sub(mark))
            }
        }
    }

    /// Returns the stack position of its top `count` values.
    fn upper(&self, count: usize) -> Result<usize, String> {
        let start = self.stack.len().checked_sub(count).filter(|&start| start >= self.floor());
        start.ok_or_else(|| "the program takes more values than the stack has".into())
    }

    fn discard_above_mark(&mut self) -> Result<(), String> {
        let count = self.count(Taken::AboveMark)?;
        let start = self.upper(count)?;
        self.stack.truncate(start);
        Ok(())
    }

    fn integer(&mut self, opcode: u8) -> Result<(), String> {
        let value = match opcode {
            b'K' => i64::from(self.code.byte()?),
            b'M' => i64::from(u16::from_le_bytes(self.code.array()?)),
            _ => i64::from(i32::from_le_bytes(self.code.array()?)),
        };
        self.push(Item::Int(value))
    }

    fn float(&mut self) -> Result<(), String> {
        let value = f64::from_be_bytes(self.code.array()?);
        self.push(Item::Float(value))
    }

    fn text(&mut self, width: Width) -> Result<(), String> {
        let length = self.code.length(width)?;
        let bytes = self.code.take(length)?;
        // Python may write lone surrogates, which are not UTF-8: such text is kept as opaque bytes.
        let item = std::str::from_utf8(bytes).map_or(Item::Opaque, Item::Text);
        self.push(item)
    }

    fn bytes(&mut self, width: Width) -> Result<(), String> {
        let length = self.code.length(width)?;
        let at = self.code.position();
        self.code.take(length)?;
        self.push(Item::Bytes(Inline { at: index(at), length: index(length), is_text: false }))
    }

    fn long(&mut self, width: Width) -> Result<(), String> {
        let length = self.code.length(width)?;
        let bytes = self.code.take(length)?;
        let item = if length <= 8 {
            // Two's complement, little endian; the sign is the top bit of the last byte.
            let fill = if bytes.last().is_some_and(|byte| byte & 0x80 != 0) { 0xFF } else { 0 };
            let mut wide = [fill; 8];
            wide.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
            Item::Int(i64::from_le_bytes(wide))
        } else {
            Item::BigInt(bytes)
        };
        self.push(item)
    }

    fn tuple(&mut self, taken: Taken) -> Result<(), String> {
        let count = self.count(taken)?;
        self.draw(count)?;
        let start = self.upper(count)?;
        let tuple = self.heap.new_tuple(self.stack.drain(start..));
        self.push(tuple)
    }

    fn empty_list(&mut self) -> Result<(), String> {
        let list = self.heap.new_list();
        self.push(list)
    }

    fn append(&mut self, taken: Taken) -> Result<(), String> {
        let count = self.count(taken)?;
        self.draw(count)?;
        let start = self.upper(count)?;
        let below = start.checked_sub(1).filter(|&at| at >= self.floor()).and_then(|at| self.stack.get(at));
        match below {
            Some(Item::List(list)) => self.heap.extend_list(*list, self.stack.drain(start..)),
            Some(Item::Opaque) => self.stack.truncate(start),
            _ => return Err("the program appends to something that is not a list".into()),
        }
        Ok(())
    }

    fn empty_dict(&mut self) -> Result<(), String> {
        let dict = self.heap.new_dict();
        self.push(dict)
    }

    fn set_items(&mut self, taken: Taken) -> Result<(), String> {
        let count = self.count(taken)?;
        self.draw(count)?;
        let start = self.upper(count)?;
        let below = start.checked_sub(1).filter(|&at| at >= self.floor()).and_then(|at| self.stack.get(at));
        match below {
            _ if !count.is_multiple_of(2) => return Err("the program sets a key without a value".into()),
            Some(Item::Dict(dict)) => self.heap.extend_dict(*dict, self.stack.drain(start..)),
            Some(Item::Opaque) => self.stack.truncate(start),
            _ => return Err("the program sets a key of something that is not a dict".into()),
        }
        Ok(())
    }

    fn global(&mut self) -> Result<(), String> {
        let module = self.code.line()?;
        let name = self.code.line()?;
        self.push(Item::Class(class(module, name)?))
    }

    fn stack_global(&mut self) -> Result<(), String> {
        match (self.pop()?, self.pop()?) {
            (Item::Text(name), Item::Text(module)) => self.push(Item::Class(class(module, name)?)),
            _ => Err("the program names a class by something that is not text".into()),
        }
    }

    fn put(&mut self, width: Width) -> Result<(), String> {
        let index = self.code.length(width)?;
        self.remember(index)
    }

    fn remember(&mut self, index: usize) -> Result<(), String> {
        let item = self.top()?;
        if index >= self.memo.len() {
            // Picklers number without gaps; a gap costs as much as values.
            self.draw(index - self.memo.len() + 1)?;
            self.memo.resize(index + 1, None);
        }
        if let Some(place) = self.memo.get_mut(index) {
            *place = Some(item);
        }
        Ok(())
    }

    fn get(&mut self, width: Width) -> Result<(), String> {
        let index = self.code.length(width)?;
        let item = self.memo.get(index).copied().flatten();
        self.push(item.ok_or_else(|| format!("the program uses value {index} before making it"))?)
    }

    fn persistent_id(&mut self) -> Result<(), String> {
        let id = self.pop()?;
        let storage = self.heap.storage(id)?;
        self.push(storage)
    }

    fn call(&mut self) -> Result<(), String> {
        let arguments = self.pop()?;
        let callee = self.pop()?;
        let (Item::Class(class), Item::Tuple(arguments)) = (callee, arguments) else {
            return Err("the program calls something that is not a class".into());
        };
        self.draw(self.heap.copied_by(class, arguments))?;
        let made = match class {
            Class::Array(ArrayPart::Encoded) => self.heap.encoded(arguments, &self.code),
            _ => self.heap.call(class, arguments)?,
        };
        self.draw(self.heap.weight(made))?;
        self.push(made)
    }

    fn build(&mut self) -> Result<(), String> {
        let state = self.pop()?;
        match self.top()? {
            Item::Record(record) => {
                self.draw(2 * self.heap.fields_of(state))?;
                self.heap.set_fields(record, state);
                Ok(())
            }
            Item::Tensor(array) => {
                self.heap.set_array(array, state);
                Ok(())
            }
            Item::ArrayType(place) => {
                self.heap.set_order(place, state);
                Ok(())
            }
            // The state of an object, such as the `_metadata` of a state dict: not needed for a comparison.
            Item::Dict(_) | Item::Opaque => Ok(()),
            _ => Err("the program sets the state of something that has none".into()),
        }
    }

    fn stop(&mut self) -> Result<Item<'a>, String> {
        let root = self.pop()?;
        if !self.stack.is_empty() || !self.marks.is_empty() {
            return Err("the program ends with values left over".into());
        }
        if self.code.left() > 0 {
            return Err(format!("{} bytes follow the end of the program", self.code.left()));
        }
        Ok(root)
    }
}

fn class<'a>(module: &'a str, name: &'a str) -> Result<Class, String> {
    Class::named(module, name).ok_or_else(|| {
        format!(
            "class {}.{} is not a tensor type, save a state dict (tensors, numbers, texts, lists, dicts)",
            printable(module),
            printable(name)
        )
    })
}
