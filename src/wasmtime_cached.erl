%% @private
%% Modules that are made once and kept in a directory. Rule: a cache that does not work costs time,
%% never the module; and what is found is only used when it is whole.
-module(wasmtime_cached).

-include_lib("kernel/include/file.hrl").

-export([run/3]).

%% How often a held lock is asked for, in ms: at first, and at most.
-define(PAUSE, 10).
-define(LONGEST_PAUSE, 200).
%% A hit makes an entry this young again, in s, so that old ones are those that nobody uses.
-define(FRESH, 86_400).

%% @doc The module of a source, from the directory when it is there.
-spec run(wasmtime_cached_options:source(), binary(), term()) ->
          {ok, reference()} | {error, wasmtime_error:t()}.
run(Source, Dir, Opts) ->
    case wasmtime_cached_options:check(Opts) of
        {ok, Own} ->
            case wasmtime_cached_options:parts(Source, Own, Own) of
                {ok, Parts} -> prepare(Source, Dir, Own, Parts);
                Error -> Error
            end;
        Error ->
            Error
    end.

prepare(Source, Dir, #{key := Key, wait := Wait} = Own, Parts) ->
    {Name, EntryKey} = wasmtime_artifact:hiding(fun() -> wasmtime_nif:cache_entry(Parts, Key) end),
    Path = filename:join(Dir, <<Name/binary, ".cwasm">>),
    Cache = Own#{source => Source, dir => Dir, name => Name, path => Path, key := EntryKey},
    case wasmtime_nif:cache_prepare(Dir, Key =:= undefined) of
        ok -> find(Cache#{until => until(Wait)});
        {error, #{kind := file} = Why} -> make(Cache#{seen => none, unusable => Why});
        Error -> Error
    end.

%% ---- looking --------------------------------------------------------------------------------

find(Cache) ->
    Seen = identity(Cache),
    case load(Cache) of
        {miss, Why} -> missing(Cache#{seen => Seen, why => Why}, ?PAUSE);
        Result -> Result
    end.

load(#{path := Path, compile := Compile, check := Check, key := Key} = Cache) ->
    Opts = Compile#{check => Check},
    case wasmtime_artifact:deserialize_file(Path, sealed(Key, Opts)) of
        {ok, Mod} ->
            keep_young(Cache),
            report(hit, Cache),
            {ok, Mod};
        {error, #{class := compile, kind := Kind} = Why}
          when Kind =:= file; Kind =:= corrupted; Kind =:= incompatible; Kind =:= untrusted ->
            {miss, Why};
        Error ->
            Error
    end.

sealed(undefined, Opts) -> Opts;
sealed(Key, Opts) -> Opts#{key => Key}.

%% One maker at a time; others wait for it, but not for ever: it may be stuck, or not ours at all.
missing(#{dir := Dir, name := Name} = Cache, Pause) ->
    case wasmtime_nif:cache_lock(Dir, Name) of
        {ok, Lock} ->
            try alone(Cache)
            after ok = wasmtime_nif:cache_unlock(Lock)
            end;
        busy ->
            wait(Cache, Pause);
        {error, _} ->
            make(Cache)
    end.

wait(#{until := Until, seen := Seen} = Cache, Pause) ->
    case erlang:monotonic_time(millisecond) >= Until of
        true ->
            make(Cache);
        false ->
            timer:sleep(Pause),
            case identity(Cache) of
                Seen -> missing(Cache, min(2 * Pause, ?LONGEST_PAUSE));
                _ -> find(Cache)
            end
    end.

%% Between looking and locking, somebody else may have made it.
alone(#{seen := Seen} = Cache) ->
    case identity(Cache) of
        Seen -> make(Cache);
        Other ->
            case load(Cache) of
                {miss, Why} -> make(Cache#{seen := Other, why => Why});
                Result -> Result
            end
    end.

%% Any integer is less than `infinity'.
until(infinity) -> infinity;
until(Wait) -> erlang:monotonic_time(millisecond) + Wait.

%% Which file it is: another one after each replacement.
identity(#{path := Path}) ->
    case file:read_file_info(Path, [raw, {time, posix}]) of
        {ok, #file_info{inode = Inode, size = Size, mtime = Time}} -> {Inode, Size, Time};
        {error, _} -> none
    end.

keep_young(#{path := Path}) ->
    Now = os:system_time(second),
    case file:read_file_info(Path, [raw, {time, posix}]) of
        {ok, #file_info{mtime = Time}} when Now - Time > ?FRESH ->
            %% A directory that cannot be written to keeps its times.
            _ = file:write_file_info(Path, #file_info{mtime = Now}, [raw, {time, posix}]),
            ok;
        _ ->
            ok
    end.

%% ---- making ---------------------------------------------------------------------------------

make(Cache) ->
    case wasmtime:features() of
        #{compiler := true} -> compile(Cache);
        #{compiler := false} -> {error, unavailable(Cache)}
    end.

%% Nothing is done for a module that cannot be made, and whoever made the entries hears which one is missing.
unavailable(#{path := Path, dir := Dir} = Cache) ->
    #{message := Why} = maps:get(why, Cache, maps:get(unusable, Cache, #{message => <<>>})),
    Reason = without(Dir, without(Path, Why)),
    %% Whole: a path that is long would cost the reason its place.
    Text = <<"this build has no compiler, and ", Path/binary, " cannot be used: ", Reason/binary>>,
    wasmtime_error:new(compile, unavailable, Text).

%% Messages about a file begin with its path.
without(Path, Text) ->
    Size = byte_size(Path),
    case Text of
        <<Path:Size/binary, ": ", Rest/binary>> -> Rest;
        _ -> Text
    end.

compile(#{source := Source, compile := Compile} = Cache) ->
    case set_up(source(Source), Cache) of
        {ok, Wasm} ->
            case wasmtime:compile(Wasm, Compile) of
                {ok, Mod} -> store(Mod, Cache);
                Error -> Error
            end;
        Error ->
            Error
    end.

set_up({ok, Source}, #{preinit := {Opts, Init}}) -> wasmtime:preinit(Source, Opts, Init);
set_up(Result, _) -> Result.

source(Source) when is_function(Source) ->
    try Source() of
        {ok, Wasm} when is_binary(Wasm) -> {ok, Wasm};
        {ok, {wat, Text}} when is_binary(Text); is_list(Text) -> {ok, {wat, Text}};
        {error, #{class := _, kind := _, message := _}} = Error -> Error;
        Other -> failed("answered ~0tp instead of {ok, Wasm}", Other)
    catch
        error:Reason -> failed("raised ~0tp", Reason);
        exit:Reason -> failed("exited with ~0tp", Reason);
        throw:Reason -> failed("threw ~0tp", Reason)
    end;
source(Source) ->
    {ok, Source}.

failed(Format, Reason) ->
    Message = wasmtime_error:text("the source function " ++ Format, [Reason]),
    {error, wasmtime_error:badarg(compile, source, Message)}.

store(Mod, #{unusable := Why} = Cache) ->
    report({not_stored, Why}, Cache),
    {ok, Mod};
store(Mod, #{dir := Dir, name := Name, key := Key} = Cache) ->
    case wasmtime_artifact:hiding(fun() -> wasmtime_nif:cache_store(Mod, Dir, Name, Key) end) of
        ok -> report(made(Cache), Cache);
        {error, Why} -> report({not_stored, Why}, Cache)
    end,
    {ok, Mod}.

made(#{seen := none}) -> made;
made(#{why := Why}) -> {replaced, Why}.

report(Event, #{report := Report}) ->
    _ = Report(Event),
    ok.
