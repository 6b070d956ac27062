import { stat } from 'node:fs/promises';
import { extname } from 'node:path';
import { Readable } from 'node:stream';
import { JSONParser, TokenType } from '@streamparser/json';
import { CsvError, parse } from 'csv-parse';
import { errorCode, OperatorError } from '../errors';

/** One record of a file. */
interface SourceRow {
  /** Line of the file, from 1, on which the record begins. */
  readonly line: number;
  /** By column name, not validated yet. */
  readonly values: unknown;
  /** An error of the record that does not depend on its values. */
  readonly fault?: string | undefined;
}

export interface SourceColumns {
  readonly columns: readonly string[];
  /** Columns that a CSV may omit. */
  readonly optionalColumns?: readonly string[];
}

export interface SourceFile {
  readonly path: string;
  readonly byteLength: number;
  /** Streams the file from its start; each call reads it again. */
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
      const chunks = readText(path, onBytesRead);
      return kind === '.csv' ? csvRows(chunks, columns) : jsonRows(chunks);
    },
  };
}

/** The text of a file without its byte order mark. */
async function* readText(path: string, onBytesRead: (count: number) => void): AsyncGenerator<string> {
  try {
    for await (const text of Bun.file(path)
      .stream()
      .pipeThrough(new TextDecoderStream('utf-8', { fatal: true }))) {
      onBytesRead(Buffer.byteLength(text));
      yield text;
    }
  } catch (error) {
    if (errorCode(error) !== 'ERR_ENCODING_INVALID_ENCODED_DATA') throw error;
    throw new OperatorError(`The file is not UTF-8 text: see line ${await findInvalidLine(path)}.`);
  }
}

/** The first line that is not UTF-8. */
async function findInvalidLine(path: string): Promise<number> {
  const lines = createLineCounter();
  const decoder = new TextDecoder('utf-8', { fatal: true });
  try {
    for await (const chunk of Bun.file(path).stream()) {
      let start = 0;
      for (const [index, byte] of chunk.entries()) {
        if (byte !== lineFeed && byte !== carriageReturn && index < chunk.length - 1) continue;
        const part = chunk.subarray(start, index + 1);
        decoder.decode(part, { stream: true });
        lines.count(part);
        start = index + 1;
      }
    }
  } catch {
    // The invalid byte is in the line after the counted ones.
  }
  return lines.line;
}

/** Removes byte order marks at the beginning of lines, which remain when files are joined. */
async function* withoutMarks(chunks: AsyncIterable<string>): AsyncGenerator<string> {
  let before = '\n';
  for await (const text of chunks) {
    yield text.includes('\ufeff') ? `${before}${text}`.replace(/(?<=[\r\n])\ufeff+/g, '').slice(before.length) : text;
    before = text.slice(-1) || before;
  }
}

const maxRecordCharacters = 100_000;

async function* csvRows(chunks: AsyncIterable<string>, columns: SourceColumns): AsyncGenerator<SourceRow> {
  /** The next line, without the empty ones. */
  let nextLine = 1;
  /** The header, before the stream delivers it. */
  let names: string[] = [];
  const parser = parse({
    relax_column_count: true,
    // The parser creates an error for each empty line that it does not skip.
    skip_empty_lines: true,
    // By default, the parser accepts only the kind of line end that it finds first.
    record_delimiter: ['\r\n', '\n', '\r'],
    // Otherwise a quote that is not closed makes one field of the rest of the file.
    max_record_size: maxRecordCharacters,
    // Appends the line to each record, because the parser counts a CRLF inside quotes twice.
    on_record: (fields: string[], { empty_lines }) => {
      if (names.length === 0 && !isBlank(fields)) names = [...fields];
      const line = nextLine + empty_lines;
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
    const line = nextLine + Number(error.empty_lines);
    const place = column === undefined ? `line ${line}` : `line ${line}, column ${column}`;
    throw new OperatorError(`The file is not well-formed CSV at ${place}: a quote is misplaced or not closed.`);
  }
  if (header === undefined) throw new OperatorError('The file has no header line.');
}

/** Spreadsheets write commas in empty rows, and DOS ends a file with Ctrl-Z. */
function isBlank(fields: readonly string[]): boolean {
  return fields.every((field) => field.replaceAll('\x1a', '').trim() === '');
}

/** Counts the line breaks inside the fields of a record. */
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

/** Describes the header for an operator. */
export function headerOf({ columns, optionalColumns = [] }: SourceColumns): string {
  const optional = optionalColumns.length === 0 ? '' : ` and optionally ${optionalColumns.join(',')}`;
  return `${columns.join(',')}${optional}`;
}

/** Gives an extra field an unknown name and leaves a missing field absent, so that both fail validation. */
function toValues(header: readonly string[], record: readonly string[]): Record<string, string> {
  return Object.fromEntries(record.map((value, index) => [header[index] ?? `field ${index + 1}`, value]));
}

async function* jsonRows(chunks: AsyncIterable<string>): AsyncGenerator<SourceRow> {
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
  const encoder = new TextEncoder();
  for await (const text of chunks) {
    const chunk = encoder.encode(text);
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

/** Finds the line of a byte offset. Offsets must ascend, and be in the last chunk or before it. */
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

const lineFeed = 10;
const carriageReturn = 13;

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
        if (byte === carriageReturn || (byte === lineFeed && !isAfterCr)) line += 1;
        isAfterCr = byte === carriageReturn;
      }
    },
  };
}
