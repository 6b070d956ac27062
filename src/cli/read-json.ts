import { OperatorError } from '../errors';

/** Reads a file of one JSON value in UTF-8. */
export async function readJsonFile(path: string): Promise<unknown> {
  const file = Bun.file(path);
  if (!(await file.exists())) throw new OperatorError(`${path} is not a file that can be read.`);
  let text: string;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(await file.bytes());
  } catch {
    throw new OperatorError(`${path} is not UTF-8 text.`);
  }
  try {
    return JSON.parse(text);
  } catch {
    throw new OperatorError(`${path} is not well-formed JSON.`);
  }
}
