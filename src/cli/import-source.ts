import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { extname } from 'node:path';
import { Readable } from 'node:stream';
import { JSONParser, TokenType } from '@streamparser/json';
import { CsvError, parse } from 'csv-parse';
import { OperatorError } from '../errors';

/** One record of a file: `values` by column name, not validated yet. */
interface SourceRow {
  /** Line of the file, from 1, on which the record begins. */
  readonly line: number;
  readonly values: unknown;
  /** A fault of the record that does not depend on its values. */
  readonly fault?: string | undefined;
}

/** The columns of a CSV. */
export interface SourceColumns {
  readonly columns: readonly string[];
  readonly optionalColumns?: readonly string[];
}

export interface SourceFile {
  readonly path: string;
  readonly byteLength: number;
  /** Reads the file once more from its start, without holding it in memory. */
  rows(onBytesRead?: (count: number) => void): AsyncGenerator<SourceRow>;
}

/**
 * Opens a CSV (with a header line) or JSON (an array of objects) file in UTF-8.
 *
 * @throws OperatorError for a file that cannot be read, is empty, or has the wrong columns
 */
export async function openSourceFile(path: string, columns: SourceColumns): Promise<SourceFile> {
  const kind = extname(path).toLowerCase();
  if (kind !== '.csv' && kind !== '.json') throw new OperatorError(`${path} must be a .csv or a .json file.`);
  const details = await stat(path).catch(() => undefined);
  if (!details?.isFile()) throw new OperatorError(`${path} is not a readable file.`);
  if (details.size === 0) throw new OperatorError(`${path} is empty.`);
  return {
    path,
    byteLength: details.size,
    rows: (onBytesRead = () => undefined) => {
      const chunks = readUtf8(path, onBytesRead);
      return kind === '.csv' ? csvRows(chunks, columns) : jsonRows(chunks);
    },
  };
}

const maxRecordCharacters = 100_000;

/** The bytes of a file, without its byte order mark, refused where they are not UTF-8. */
async function* readUtf8(path: string, onBytesRead: (count: number) => void): AsyncGenerator<Uint8Array> {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const lines = createLineCounter();
  let last: Uint8Array = new Uint8Array();
  const check = (chunk?: Uint8Array) => {
    try {
      decoder.decode(chunk, { stream: chunk !== undefined });
    } catch {
      if (chunk !== undefined) countToFault(last, chunk, lines);
      throw new OperatorError(`The file is not UTF-8 text: see line ${lines.line}.`);
    }
  };
  let isFirst = true;
  for await (const chunk of createReadStream(path)) {
    if (!(chunk instanceof Uint8Array)) throw new TypeError('A file stream without an encoding gives bytes');
    check(chunk);
    lines.count(chunk);
    last = chunk;
    onBytesRead(chunk.byteLength);
    yield isFirst && chunk[0] === 0xef && chunk[1] === 0xbb && chunk[2] === 0xbf ? chunk.subarray(3) : chunk;
    isFirst = false;
  }
  check();
}

/** Counts the lines of a chunk up to the first byte that is not UTF-8; `before` is the chunk before it. */
function countToFault(before: Uint8Array, chunk: Uint8Array, lines: LineCounter): void {
  const decoder = new TextDecoder('utf-8', { fatal: true });
  const end = before.subarray(-3);
  const openCharacter = end.findLastIndex((byte) => byte >= 0xc0);
  try {
    if (openCharacter !== -1) decoder.decode(end.subarray(openCharacter), { stream: true });
    for (let at = 0; at < chunk.byteLength; at += 1) {
      decoder.decode(chunk.subarray(at, at + 1), { stream: true });
      lines.count(chunk.subarray(at, at + 1));
    }
  } catch {
    // The line is counted.
  }
}

/** Removes byte order marks at the beginning of lines, which joined files leave. */
async function* withoutMarks(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  let before = '\n';
  for await (const chunk of chunks) {
    const text = decoder.decode(chunk, { stream: true });
    yield text.includes('\ufeff') ? `${before}${text}`.replace(/(?<=[\r\n])\ufeff+/g, '').slice(before.length) : text;
    before = text.slice(-1) || before;
  }
}

async function* csvRows(chunks: AsyncIterable<Uint8Array>, columns: SourceColumns): AsyncGenerator<SourceRow> {
  let nextLine = 1;
  /** The width of the header, known before the stream delivers the record. */
  let names: string[] = [];
  const parser = parse({
    relax_column_count: true,
    // Without this list, the parser accepts only the first line end that it finds.
    record_delimiter: ['\r\n', '\n', '\r'],
    // A quote that is not closed would otherwise take the rest of the file for one field.
    max_record_size: maxRecordCharacters,
    // Each record takes its line along, as a last field: the parser's own count takes a CRLF inside quotes for two.
    on_record: (fields: string[]) => {
      if (names.length === 0 && !isBlank(fields)) names = [...fields];
      const line = nextLine;
      nextLine += 1 + countBreaks(fields);
      fields.push(String(line));
      return fields;
    },
  });
  const source = Readable.from(withoutMarks(chunks));
  source.on('error', (error) => parser.destroy(error));
  let header: string[] | undefined;
  try {
    for await (const record of source.pipe(parser)) {
      const fields: string[] = record;
      const line = Number(fields.pop());
      if (isBlank(fields)) continue;
      if (header === undefined) {
        header = checkHeader(fields, columns);
        continue;
      }
      yield { line, values: toValues(header, fields), fault: joinedFault(fields, header.length, columns) };
    }
  } catch (error) {
    if (!(error instanceof CsvError)) throw error;
    const column = columns.columns.find((name) => name === names[Number(error.column)]);
    const place = column === undefined ? `line ${nextLine}` : `line ${nextLine}, column ${column}`;
    throw new OperatorError(`The file is not well-formed CSV at ${place}: a quote is misplaced or not closed.`);
  }
  if (header === undefined) throw new OperatorError('The file has no header line.');
}

/** Spreadsheets write empty rows with all their commas. DOS ends a file with Ctrl-Z. */
function isBlank(fields: readonly string[]): boolean {
  return fields.every((field) => field.replaceAll('\x1a', '').trim() === '');
}

/** Line breaks inside the fields of a record. */
function countBreaks(fields: readonly string[]): number {
  return fields.reduce((count, field) => count + (/[\r\n]/.test(field) ? field.split(/\r\n|\r|\n/).length - 1 : 0), 0);
}

function checkHeader(header: string[], { columns, optionalColumns = [] }: SourceColumns): string[] {
  const unknown = header.filter((name) => !columns.includes(name) && !optionalColumns.includes(name));
  const missing = columns.filter((name) => !header.includes(name));
  const doubled = header.filter((name, index) => header.indexOf(name) !== index);
  if (unknown.length + missing.length + doubled.length > 0) {
    const faults = [
      unknown.length > 0 && `unknown: ${unknown.map((name) => JSON.stringify(name)).join(', ')}`,
      missing.length > 0 && `missing: ${missing.join(', ')}`,
      doubled.length > 0 && `doubled: ${doubled.join(', ')}`,
    ].filter((fault) => fault !== false);
    throw new OperatorError(
      `The header must have the columns ${headerOf({ columns, optionalColumns })}, separated by commas (${faults.join('; ')}).`,
    );
  }
  return header;
}

/** Reports the header of a second, joined file, on its own line or after a row. */
function joinedFault(
  fields: readonly string[],
  width: number,
  { columns, optionalColumns = [] }: SourceColumns,
): string | undefined {
  const known = [...columns, ...optionalColumns];
  const isHeader = (names: readonly string[]) => names.length > 1 && names.every((name) => known.includes(name.trim()));
  if (isHeader(fields)) return 'the row repeats the header, as where two files were joined: remove this line';
  const [end = '', ...rest] = fields.slice(width - 1);
  return isHeader(rest) && known.some((name) => end.endsWith(name))
    ? 'the header of another file follows the row: two files were joined without a line break between them'
    : undefined;
}

/** How a header is told to an operator. */
export function headerOf({ columns, optionalColumns = [] }: SourceColumns): string {
  const optional = optionalColumns.length === 0 ? '' : ` and optionally ${optionalColumns.join(',')}`;
  return `${columns.join(',')}${optional}`;
}

/** A field too many goes under a name that no model knows, a field too few stays absent: both become bad rows. */
function toValues(header: readonly string[], record: readonly string[]): Record<string, string> {
  return Object.fromEntries(record.map((value, index) => [header[index] ?? `field ${index + 1}`, value]));
}

async function* jsonRows(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<SourceRow> {
  const parser = new JSONParser({ paths: ['$.*'], keepStack: false });
  const lines = createOffsetLines();
  const found: SourceRow[] = [];
  let depth = 0;
  let line = 1;
  let failure: Error | undefined;
  parser.onToken = ({ token, offset }) => {
    if (depth === 0 && token !== TokenType.LEFT_BRACKET) throw new OperatorError('The file must hold one JSON array.');
    const opens = token === TokenType.LEFT_BRACE || token === TokenType.LEFT_BRACKET;
    const closes = token === TokenType.RIGHT_BRACE || token === TokenType.RIGHT_BRACKET;
    if (depth === 1 && !closes && token !== TokenType.COMMA) line = lines.lineAt(offset);
    depth += opens ? 1 : closes ? -1 : 0;
  };
  parser.onValue = ({ value }) => {
    found.push({ line, values: value });
  };
  parser.onError = (error) => {
    failure ??= parser.isEnded ? new OperatorError('The file must hold one JSON array, and nothing after it.') : error;
  };
  for await (const chunk of chunks) {
    lines.feed(chunk);
    parser.write(chunk);
    yield* found.splice(0);
    if (failure !== undefined) break;
  }
  if (failure instanceof OperatorError) throw failure;
  if (failure !== undefined || !parser.isEnded) {
    throw new OperatorError(`The file is not well-formed JSON: see line ${line} or shortly after it.`);
  }
}

/** Tells the line of a byte offset; offsets must come in ascending order and lie in the chunk fed last or before. */
function createOffsetLines() {
  const lines = createLineCounter();
  let chunk: Uint8Array = new Uint8Array();
  let chunkStart = 0;
  let counted = 0;
  const countTo = (offset: number) => {
    lines.count(chunk.subarray(counted - chunkStart, offset - chunkStart));
    counted = offset;
  };
  return {
    feed(next: Uint8Array) {
      countTo(chunkStart + chunk.byteLength);
      chunkStart += chunk.byteLength;
      chunk = next;
    },
    lineAt(offset: number): number {
      if (offset > counted) countTo(offset);
      return lines.line;
    },
  };
}

type LineCounter = ReturnType<typeof createLineCounter>;

/** Counts lines from 1 as an editor does: CRLF, LF and CR each end one. */
function createLineCounter() {
  let line = 1;
  let isAfterCr = false;
  return {
    get line() {
      return line;
    },
    count(bytes: Uint8Array) {
      for (const byte of bytes) {
        if (byte === 13 || (byte === 10 && !isAfterCr)) line += 1;
        isAfterCr = byte === 13;
      }
    },
  };
}
