%% @doc Types of {@link wasmtime}: WASI's options. The functions are the library's own.
%% @end
%% The options of WASI: what the guest sees of the host. Nothing but what is named here.
-module(wasmtime_wasi).

-include("wasmtime_text.hrl").

-export([defaults/0, option/3, resolved/1, names/3, is_large/1, opens_files/1]).
-export_type([options/0]).

-import(wasmtime_options, [refuse/2, refuse/3, integer/4, one_of/3]).

-type output() :: none | inherit | capture | stream | {file, file:name_all()}.
-type options() :: #{args => [iodata()],
                     env => inherit | [{iodata(), iodata()}],
                     dirs => [{iodata(), file:name_all(), read | write}],
                     stdin => none | inherit | stream | {file, file:name_all()} | {binary, iodata()},
                     stdout => output(),
                     stderr => output(),
                     output_limit => non_neg_integer(),
                     clocks => all | monotonic}.

%% Strings, and bytes of them and of input, that are copied inline: about a tenth of a millisecond.
-define(MANY, 500).
-define(MUCH, 262144).
-define(MAX_OUTPUT, 16#FFFFFFFFFFFFFFFF).

%% @doc What a guest gets when WASI is linked and nothing else is said.
%% @private
-spec defaults() -> map().
defaults() ->
    #{args => [], env => [], dirs => [], stdin => none, stdout => none, stderr => none,
      output_limit => 16777216, clocks => all}.

%% @doc One option into the complete map.
%% @private
-spec option(term(), term(), map()) -> map().
option(args, Value, Acc) ->
    Acc#{args := names(args, Value, "must be a list of strings, each " ?TEXT)};
option(env, inherit, Acc) ->
    Acc#{env := inherit};
option(env, Value, Acc) ->
    Acc#{env := each(env, Value, fun variable/1)};
option(dirs, Value, Acc) ->
    Acc#{dirs := each(dirs, Value, fun dir/1)};
option(stdin, Value, Acc) ->
    Acc#{stdin := stdin(Value)};
option(stdout, Value, Acc) ->
    Acc#{stdout := output(stdout, Value)};
option(stderr, Value, Acc) ->
    Acc#{stderr := output(stderr, Value)};
option(output_limit, Value, Acc) ->
    Acc#{output_limit := integer(output_limit, Value, 0, ?MAX_OUTPUT)};
option(clocks, Value, Acc) ->
    Acc#{clocks := one_of(clocks, Value, [all, monotonic])};
option(Key, _, _) ->
    refuse(Key, "unknown WASI option ~0tp", [Key]).

%% @doc Complete options with the environment that an instance inherits: the node's at this moment. What no
%% guest could read, a name without characters or with =, is left out.
%% @private
-spec resolved(map()) -> map().
resolved(Wasi) ->
    Wasi#{env := [Variable || {Name, Value} <- os:env(), Variable <- inherited(Name, Value)]}.

inherited(Name, Value) ->
    case {wasmtime_text:name(Name), wasmtime_text:name(Value)} of
        {{ok, N}, {ok, V}} when N =/= <<>> -> [{N, V} || binary:match(N, <<"=">>) =:= nomatch];
        _ -> []
    end.

%% @doc Whether complete options take long to copy.
%% @private
-spec is_large(map() | undefined) -> boolean().
is_large(#{args := [], env := [], stdin := Stdin}) when not is_tuple(Stdin) -> false;
is_large(#{args := Args, env := Env, stdin := Stdin}) ->
    Texts = Args ++ [[Name, $=, Value] || {Name, Value} <- Env] ++ [Data || {binary, Data} <- [Stdin]],
    length(Texts) > ?MANY orelse iolist_size(Texts) > ?MUCH;
is_large(undefined) -> false.

%% @doc Whether complete options make native code open files: one that is written to is emptied, which takes
%% as long as it is large. Folders take some microseconds, a dirty scheduler many times as much.
%% @private
-spec opens_files(map() | undefined) -> boolean().
opens_files(#{stdin := In, stdout := Out, stderr := Err}) -> lists:any(fun is_file/1, [In, Out, Err]);
opens_files(undefined) -> false.

is_file({file, _}) -> true;
is_file(_) -> false.

%% @doc A list of names; Rule says what is wrong when it is not.
%% @private
-spec names(atom(), term(), string()) -> [binary()].
names(Key, Names, Rule) ->
    Name = fun(Text) ->
        case wasmtime_text:name(Text) of
            {ok, Bin} -> Bin;
            error -> refuse(Key, "~s " ++ Rule ++ ", not ~0tp", [Key, Names])
        end
    end,
    each(Key, Names, Name).

each(_, Values, Fun) when length(Values) >= 0 -> [Fun(Value) || Value <- Values];
each(Key, Value, _) -> refuse(Key, "~s must be a list, not ~0tp", [Key, Value]).

variable({Name, Value}) ->
    case {wasmtime_text:name(Name), wasmtime_text:name(Value)} of
        {{ok, N}, {ok, V}} when N =/= <<>> ->
            binary:match(N, <<"=">>) =:= nomatch
                orelse refuse(env, "the name of variable ~0tp contains =", [Name]),
            {N, V};
        _ ->
            refuse(env, "variable ~0tp: name and value must be " ?TEXT ", "
                        "and the name not empty", [Name])
    end;
variable(_) ->
    refuse(env, "env must be inherit or a list of {Name, Value}").

dir({Guest, Host, Access} = Dir) when Access =:= read; Access =:= write ->
    case {wasmtime_text:name(Guest), wasmtime_text:path(Host)} of
        {{ok, G}, {ok, H}} when G =/= <<>> -> {G, H, Access};
        _ -> refuse(dirs, "both paths of ~0tp must be " ?TEXT ", not empty", [Dir])
    end;
dir(Other) ->
    refuse(dirs, "dirs must be a list of {GuestPath, HostPath, read | write}, not ~0tp", [Other]).

stdin(Value) when Value =:= none; Value =:= inherit; Value =:= stream -> Value;
stdin({file, Path}) -> {file, file(stdin, Path)};
stdin({binary, Data} = Value) ->
    try {binary, iolist_to_binary(Data)}
    catch error:badarg -> refuse(stdin, "stdin ~0tp must hold iodata", [Value])
    end;
stdin(Value) ->
    refuse(stdin, "stdin must be none, inherit, stream, {file, Path} or {binary, Data}, not ~0tp", [Value]).

output(_, Value)
  when Value =:= none; Value =:= inherit; Value =:= capture; Value =:= stream -> Value;
output(Key, {file, Path}) -> {file, file(Key, Path)};
output(Key, Value) ->
    refuse(Key, "~s must be none, inherit, capture, stream or {file, Path}, not ~0tp", [Key, Value]).

file(Key, Path) ->
    case wasmtime_text:path(Path) of
        {ok, Bin} -> Bin;
        error -> refuse(Key, "~s: the path ~0tp must be " ?TEXT ", not empty", [Key, Path])
    end.
