%% JSON for the figures, and the file they go to. (OTP 25 has no encoder.)
%% An object is {[{Key, Value}]}, in that order; an array is a list; text is a binary.
-module(bench_json).

-export([encode/1, writable/1, write/2]).
-export_type([json/0]).

-type json() :: {[{atom(), json()}]} | [json()] | binary() | number() | boolean().

%% @doc Says before a long run that its figures would have nowhere to go.
-spec writable(none | file:filename()) -> ok.
writable(none) -> ok;
writable(File) -> written(File, file:write_file(File, <<>>, [append])).

-spec write(none | file:filename(), json()) -> ok.
write(none, _) -> ok;
write(File, Json) -> written(File, file:write_file(File, [encode(Json), $\n])).

written(_, ok) -> ok;
written(File, {error, Reason}) ->
    throw({failed, io_lib:format("~ts: ~ts", [File, file:format_error(Reason)])}).

-spec encode(json()) -> iodata().
encode({Members}) -> [${, separated([member(Member) || Member <- Members]), $}];
encode(Items) when is_list(Items) -> [$[, separated([encode(Item) || Item <- Items]), $]];
encode(Bool) when is_boolean(Bool) -> atom_to_binary(Bool);
encode(Text) when is_binary(Text) -> text(Text);
encode(Integer) when is_integer(Integer) -> integer_to_binary(Integer);
encode(Float) when is_float(Float) -> float_to_binary(Float, [{decimals, 3}, compact]).

member({Key, Value}) -> [text(atom_to_binary(Key)), $:, encode(Value)].

separated(Parts) -> lists:join($,, Parts).

text(Text) -> [$", [char(Char) || Char <- unicode:characters_to_list(Text)], $"].

char($") -> "\\\"";
char($\\) -> "\\\\";
char(Char) when Char < 32 -> io_lib:format("\\u~4.16.0b", [Char]);
char(Char) -> unicode:characters_to_binary([Char]).
