%% @doc Types of {@link wasmtime}: errors. The functions are the library's own.
%% @end
%% Errors as data: a class, a kind and a message. Native code makes most of them; those that Erlang
%% finds by itself are made here, in the same shape.
-module(wasmtime_error).

-export([new/3, badarg/2, badarg/3, within/2, text/2, hide/1, start/1, format_error/2]).

%% The secret of an artifact, as an option or in a list of options.
-define(IS_SECRET(Key, Value), Key =:= key andalso (is_binary(Value) orelse is_list(Value))).
-export_type([class/0, kind/0, frame/0, t/0]).

-type class() :: compile | link | instantiate | limit | pool | call | memory | global
               | table | ref | trap
               | exit | host | stream | preinit | internal.
-type kind() :: atom().
-type frame() :: #{func_index := non_neg_integer(),
                   func_offset := non_neg_integer() | undefined,
                   func_name := binary() | undefined,
                   module_name := binary() | undefined}.
-type t() :: #{class := class(),
               kind := kind(),
               message := binary(),
               status => integer(),
               trace => [frame()],
               key => term()}.

%% Characters of a foreign term that a message may show.
-define(CHARS, 500).
%% As much of a term as could fill them: a part takes a character or more, a character up to 4 bytes.
-define(PARTS, 1000).
-define(BYTES, 2048).
%% A term is written out once for each level that it is deep.
-define(DEPTH, 50).
%% Numbers from here on take long to write out.
-define(LARGE, (1 bsl 2048)).

%% @doc An error of any kind.
%% @private
-spec new(class(), kind(), binary()) -> t().
new(Class, Kind, Message) ->
    #{class => Class, kind => Kind, message => Message}.

%% @doc An argument that cannot be taken.
%% @private
-spec badarg(class(), binary()) -> t().
badarg(Class, Message) ->
    new(Class, badarg, Message).

%% @doc An option that cannot be taken, named by its key.
%% @private
-spec badarg(class(), term(), binary()) -> t().
badarg(Class, Key, Message) ->
    (badarg(Class, Message))#{key => Key}.

%% @doc The result of a call that was given less time than its caller named, with the caller's time in
%% the message.
%% @private
-spec within(Result, timeout()) -> Result when Result :: {ok, [term()]} | {error, t()}.
within({error, #{class := trap, kind := timeout} = Error}, Ms) when is_integer(Ms) ->
    {error, Error#{message := text("the call did not end within ~w ms", [Ms])}};
within(Result, _) ->
    Result.

%% @doc A message, cut when a term in it is long. A term is cut before it is written out: that takes
%% longer the larger it is, however little is shown. The key of an artifact is never shown.
%% @private
-spec text(io:format(), [term()]) -> binary().
text(Format, Args) ->
    Chars = io_lib:format(Format, [cut(Arg) || Arg <- Args], [{chars_limit, ?CHARS}]),
    case unicode:characters_to_binary(Chars) of
        Text when is_binary(Text) -> Text;
        _ -> iolist_to_binary(io_lib:format("~w", [Chars]))
    end.

cut(Term) -> element(1, cut(Term, ?PARTS, ?DEPTH)).

%% What is shown of a term with so many parts at most, so deep, and how many more there might have
%% been. Text stays text.
cut(Bits, Left, _) when is_bitstring(Bits), byte_size(Bits) > ?BYTES -> {start(Bits), Left - ?BYTES};
cut(Bits, Left, _) when is_bitstring(Bits) -> {Bits, Left - byte_size(Bits)};
cut({Key, Value}, Left, _) when ?IS_SECRET(Key, Value) -> {{Key, '...'}, Left};
cut([_ | _], Left, _) when Left =< 0 -> {[], 0};
cut(Term, Left, Depth) when Left =< 0 orelse Depth =:= 0, is_tuple(Term) orelse is_map(Term) ->
    {'...', Left};
cut([_ | _], Left, 0) -> {'...', Left};
cut([_ | _] = List, Left, Depth) -> cut_list(List, Left, Depth - 1, []);
cut(Tuple, Left, Depth) when is_tuple(Tuple) ->
    Parts = [element(N, Tuple) || N <- lists:seq(1, min(Left, tuple_size(Tuple)))],
    {Cut, Rest} = cut_list(Parts, Left, Depth - 1, []),
    {list_to_tuple(Cut), Rest};
cut(Map, Left, Depth) when is_map(Map) ->
    cut_map(maps:next(maps:iterator(Map)), Left, Depth - 1, #{});
cut(Number, Left, _) when is_integer(Number), abs(Number) >= ?LARGE -> {'...', Left};
cut(Term, Left, _) -> {Term, Left}.

cut_list([Head | Tail], Left, Depth, Seen) when Left > 0 ->
    {Cut, Rest} = cut(Head, Left - 1, Depth),
    cut_list(Tail, Rest, Depth, [Cut | Seen]);
cut_list([], Left, _, Seen) -> {lists:reverse(Seen), Left};
cut_list([_ | _], _, _, Seen) -> {lists:reverse(Seen), 0};
cut_list(Tail, Left, Depth, Seen) ->
    {Cut, Rest} = cut(Tail, Left, Depth),
    {lists:reverse(Seen, Cut), Rest}.

cut_map({Key, Value, Next}, Left, Depth, Seen) when Left > 0, ?IS_SECRET(Key, Value) ->
    cut_map(maps:next(Next), Left - 1, Depth, Seen#{Key => '...'});
cut_map({Key, Value, Next}, Left, Depth, Seen) when Left > 0 ->
    {CutKey, Rest} = cut(Key, Left - 1, Depth),
    {CutValue, Less} = cut(Value, Rest, Depth),
    cut_map(maps:next(Next), Less, Depth, Seen#{CutKey => CutValue});
cut_map(_, Left, _, Seen) -> {Seen, Left}.

%% @doc A term, to be logged by others, without the keys of artifacts in it.
%% @private
-spec hide(term()) -> term().
hide({Key, Value}) when ?IS_SECRET(Key, Value) -> {Key, '...'};
hide([Head | Tail]) -> [hide(Head) | hide(Tail)];
hide(Tuple) when is_tuple(Tuple) -> list_to_tuple(hide(tuple_to_list(Tuple)));
hide(Map) when is_map(Map) -> maps:map(fun hide_value/2, Map);
hide(Term) -> Term.

hide_value(Key, Value) when ?IS_SECRET(Key, Value) -> '...';
hide_value(_, Value) -> hide(Value).

%% @doc As much of a binary as a message could show. It ends where a character does, if it is text.
%% @private
-spec start(bitstring()) -> bitstring().
start(Bits) when byte_size(Bits) =< ?BYTES ->
    Bits;
start(Bits) ->
    <<Start:?BYTES/binary, _/bitstring>> = Bits,
    case unicode:characters_to_binary(Start) of
        {incomplete, Text, _} -> Text;
        _ -> Start
    end.

%% @doc What a shell says of a `badarg' exception (see `erlang:error/3').
%% @private
-spec format_error(badarg, erlang:stacktrace()) -> #{pos_integer() => iodata()}.
format_error(badarg, [{_, _, _, Info} | _]) ->
    #{cause := Sort} = proplists:get_value(error_info, Info),
    #{1 => sort(Sort)}.

sort(instance) -> <<"not an instance">>;
sort(module) -> <<"not a module">>;
sort(template) -> <<"a template, whose options were given to prepare/2: instantiate/1 takes it">>;
sort(source) -> <<"neither the bytes of a module nor {wat, Text}">>;
sort(cache_source) -> <<"neither the bytes of a module, nor {wat, Text}, nor a function without arguments">>;
sort(artifact) -> <<"not the bytes of an artifact">>;
sort(path) -> <<"not a path">>;
sort(ref) -> <<"not a reference into an instance">>;
sort(type) -> <<"neither a type {Params, Results} nor an instance">>.
